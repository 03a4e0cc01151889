"""Remote files: object stores (s3://, read and written) and HTTP servers (read-only).

urls.py       remote or not, bucket and key
options.py    `storage_options` as users know them, checked, by bucket; keys are kept apart
retry.py      which failures are tried again, after how long, how often
s3.py         the requests: list, look, read a range, write, write if nothing is there, upload in parts
http.py       the same for web servers: look, read a range
checksums.py  what a store keeps of the contents of an object, compared with what arrived
reading.py    a remote file as Python knows files: seek, read; large reads in parallel ranges
opening.py    `open_input` and friends: one call for local and remote paths
listing.py    which objects an input means
spool.py      copies on this machine for decoders, bounded
uploads.py    local files into a bucket, in parts
scratch_files.py  scratch in a bucket: files written in parts, removed at the end
scratch_references.py  scratch that files of run directories reference, removed with them
run_locations.py  the local folder of a run whose output is in a bucket

boto3 is imported only when a path begins with s3://.
"""
