"""The command line: `start.py` is the console script, `main.py` lists the commands, each is a file of its own.

By what the user does: jobs/ and dedup/ run pipelines and workflows, media/ and models/ run those of images, videos and
classifiers, runs/ looks at runs, plan/ and profile/ say what a run will take, data/ looks at files and splits them,
doctor/ looks at the machine and at scripts. Below them: parsing/ (what was typed, help) and terminal/ (what is
printed).
"""
