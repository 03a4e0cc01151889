"""Files that lie elsewhere: object stores (s3://, read and written) and web servers (https://, read only).

urls.py       what a path says: remote or not, bucket and key
options.py    `storage_options` as users know them, checked, by bucket; no credentials in them, ever
retry.py      which failures are tried again, after how long, how often
s3.py         the requests: list, look, read a range, write, write if nothing is there, upload in parts
http.py       the same for web servers: look, read a range
checksums.py  what a store keeps of the contents of an object, compared with what arrived
reading.py    a remote file as Python knows files: seek, read; large reads in parallel ranges
opening.py    `open_input` and friends: one call for local and remote paths
listing.py    which objects an input means
spool.py      copies on this machine for decoders, bounded
ahead.py      requests that are under way while earlier answers are used
scratch_files.py  scratch in a bucket: files written in parts, removed at the end
scratch_references.py   what files of run directories name as scratch, in folders and buckets, is removed with them

boto3 is imported only when a path begins with s3://.
"""
