"""Requests to an S3 store through boto3, each tried again where that can help (retry.py).

What is read is bound to the ETag that was seen when it was listed or opened (If-Match): an object that changed
meanwhile is an error, never a mixture. What is read from its first byte to its last is compared with the checksum that
the store keeps (checksums.py). What is written carries a checksum (Content-MD5), and what must be new says so
(If-None-Match). After a lost answer the object is looked for: it is this run's if it has its mark. Nothing is deleted
on doubt.

The client is made before a worker is forked and used only after that; boto3's own retries are off, as they know nothing
of ranges.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tamis.errors import MissingExtra, RunConflict, StoreError
from tamis.files import OWN, replacing
from tamis.secrets import learn_values
from tamis.stores import retry
from tamis.stores.checksums import Expected, Running, expected_of
from tamis.stores.options import StoreKeys, StoreOptions, keys_of, of_bucket
from tamis.stores.reading import Changed, Check, Damaged, copy_into, read_all, retry_if_damaged, version_of

_TRANSIENT = {500, 502, 503, 504, 429, 408}
_SLOW_DOWN = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequests",
    "ServiceUnavailable",
}
_TRANSIENT_CODES = {
    *_SLOW_DOWN,
    "RequestTimeout",
    "InternalError",
    "ConditionalRequestConflict",
    "OperationAborted",
    "BadDigest",
}
# Of a body at a time: the library copies through its own memory, which stays in the cache and is used again.
_PIECE_BYTES = 1 << 20
_COPY_BYTES = 1 << 30  # stores copy at most 5 GiB in one request
MARK = "tamis-mark"  # the name under which an object says who wrote it


class Object(NamedTuple):
    """Metadata of an object."""

    key: str
    size: int
    etag: str
    mark: str = ""
    expected: Expected | None = None  # its checksum; listings have none


class AccessDenied(StoreError):
    """The store denies these credentials: trying again cannot help."""


class NoBucket(StoreError):
    """There is no such bucket, so that there is nothing in it."""


class NameTaken(Exception):
    """Something is there already, and it was to be new."""


_clients: dict[tuple[StoreOptions, StoreKeys | None], Any] = {}
_used = False


def _after_fork() -> None:
    """Drop clients that were used: connections must not be shared with the parent."""
    global _used
    if _used:
        _clients.clear()
        _used = False


os.register_at_fork(after_in_child=_after_fork)


def client(options: StoreOptions, keys: StoreKeys | None = None) -> Any:
    """Return the boto3 client for these options, created once. `keys`: instead of those of the environment."""
    if (options, keys) in _clients:
        return _clients[options, keys]
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
    except ImportError:
        raise MissingExtra("s3://", "s3") from None
    # Never in a message.
    learn_values({name: os.environ.get(name, "") for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")})
    own = (None, None, None) if keys is None else (keys.key, keys.secret, keys.token)
    session = boto3.session.Session(*own)
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        max_pool_connections=16,
        request_checksum_calculation="when_required",  # we send Content-MD5, which every store knows
        response_checksum_validation="when_required",
        s3={"addressing_style": options.addressing_style} if options.addressing_style else None,
        signature_version=UNSIGNED if options.anon else None,
        user_agent_extra="tamis",
    )
    connection = session.client(
        "s3",
        endpoint_url=options.endpoint_url,
        region_name=options.region_name or session.region_name or "us-east-1",
        use_ssl=options.use_ssl is not False,  # where no endpoint_url says http or https
        verify=options.verify,
        config=config,
    )
    _clients[options, keys] = connection
    return connection


class Bucket:
    """The requests, for one bucket.

    `timeout_s`: of a connection and of an answer, instead of what is set for the bucket.
    """

    def __init__(self, name: str, requester_pays: bool = False, timeout_s: float | None = None) -> None:
        self.name, self._options = name, of_bucket(name)
        if requester_pays:
            self._options = replace(self._options, requester_pays=True)
        if timeout_s is not None:
            connect_s = min(timeout_s, self._options.connect_timeout)
            self._options = replace(self._options, connect_timeout=connect_s, read_timeout=float(timeout_s))

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    # -- looking ------------------------------------------------------------------------------------------------------
    def head(self, key: str) -> Object | None:
        """Return the object; None if it does not exist."""
        arguments = {"Key": key, "ChecksumMode": "ENABLED", **self._payer()}
        answer = self._request("looking at", "head_object", key, ok=(404,), **arguments)
        if answer is None:
            return None
        etag, mark = str(answer["ETag"]), str(answer.get("Metadata", {}).get(MARK, ""))
        return Object(key, int(answer["ContentLength"]), etag, mark, expected_of(answer))

    def part_size(self, info: Object, number: int) -> int:
        """Return the bytes of one part of an object that was uploaded in parts; -1 if the store does not report it."""
        arguments = {"Key": info.key, "PartNumber": number, **self._payer()}
        answer = self._request("looking at", "head_object", info.key, ok=(400, 404, 416), **arguments)
        return -1 if answer is None else int(answer["ContentLength"])

    def may_list(self, prefix: str) -> bool:
        """Return True if the store lets us list the keys that begin with `prefix`.

        If not, it refuses (403) missing keys just like secret ones.
        """
        try:
            next(self.objects(prefix), None)
        except AccessDenied:
            return False
        return True

    def objects(self, prefix: str) -> Iterator[Object]:
        """Yield all objects whose keys begin with `prefix`, in key order, a thousand at a time."""
        following = {"ContinuationToken": "NextContinuationToken"}
        for answer in self._pages("list_objects_v2", prefix, following, **self._payer()):
            for entry in answer.get("Contents", ()):
                yield Object(str(entry["Key"]), int(entry["Size"]), str(entry["ETag"]))

    def _pages(self, what: str, prefix: str, following: Mapping[str, str], **arguments: Any) -> Iterator[Any]:
        """Yield the responses to a listing request, one after the other.

        `following`: maps each argument of the next request to the field of this response that provides it.
        """
        position: dict[str, Any] = {}
        while True:
            answer = self._request("listing", what, prefix, Prefix=prefix, **position, **arguments)
            yield answer
            if not answer.get("IsTruncated"):
                return
            position = {name: str(answer[field]) for name, field in following.items()}

    # -- reading ------------------------------------------------------------------------------------------------------
    def read_into(self, key: str, etag: str, offset: int, view: memoryview) -> None:
        """Fill `view` with the bytes from `offset` on, of the object with this ETag.

        A connection that is cut resumes where it was.
        """
        done = 0

        def call() -> None:
            nonlocal done
            byte_range = f"bytes={offset + done}-{offset + len(view) - 1}"
            answer = self._ask("get_object", key, Key=key, Range=byte_range, IfMatch=etag, **self._payer())
            body = answer["Body"]
            try:
                if int(answer.get("ContentLength", -1)) != len(view) - done:
                    raise retry.Temporary(f"asked for {byte_range}, got {answer.get('ContentLength')} bytes")
                while done < len(view):
                    n = int(_streamed(body.readinto, view[done : done + _PIECE_BYTES]))
                    if not n:
                        raise retry.Temporary(f"the connection was cut after {done} of {len(view)} bytes")
                    done += n
            finally:
                body.close()

        if len(view):
            retry.call_with_retries(call, f"reading {self.url(key)}")

    def read_once(self, key: str, offset: int, n_bytes: int, policy: retry.Policy = retry.POLICY) -> bytes:
        """Read bytes from `offset` on once, of the present version; fewer where the object ends."""

        def call() -> bytes:
            byte_range = f"bytes={offset}-{offset + n_bytes - 1}"
            with contextlib.closing(
                self._ask("get_object", key, Key=key, Range=byte_range, **self._payer())["Body"]
            ) as body:
                return bytes(_streamed(body.read))

        return retry.call_with_retries(call, f"reading {self.url(key)}", policy)

    def get(self, key: str, most: int = 64 << 20) -> bytes | None:
        """Return a small object; None if it does not exist. Raises StoreError if it is larger than `most`."""
        info = self.head(key)
        if info is None:
            return None
        if info.size > most:
            raise StoreError(f"{self.url(key)} has {info.size} bytes, more than anything that Tamis writes there")
        try:
            return read_all(S3Source(self, info))
        except Changed:  # rewritten between the two requests
            return self.get(key, most)

    def fetch_key(self, key: str, path: str) -> None:
        """Fetch an object into a new file like `fetch`, by its key."""
        info = self.head(key)
        if info is None:
            raise Changed(self.url(key), "is gone")
        self.fetch(info, path)

    def fetch(self, info: Object, path: str) -> None:
        """Bring an object into a new file, whole or not at all."""
        if info.expected is None and (current := self.head(info.key)) is not None and current.etag == info.etag:
            info = current
        source = S3Source(self, info)

        def read() -> None:
            with replacing(path, OWN) as out:
                copy_into(source, out)

        retry_if_damaged(read)

    # -- writing ------------------------------------------------------------------------------------------------------
    def put(self, key: str, data: bytes) -> None:
        """Write a small object, over what is there."""
        self._put(key, data)

    def put_new(self, key: str, data: bytes) -> None:
        """Write a small object where there is none; `NameTaken` where there is one with other contents.

        After a lost answer, the next try finds our own object there, which its content distinguishes from others.
        """
        if self._put(key, data, {"IfNoneMatch": "*"}) is None and self.get(key) != data:
            raise NameTaken(self.url(key))

    def _put(self, key: str, data: bytes, conditions: Mapping[str, Any] | None = None) -> Any:
        arguments = {"Key": key, "Body": data, "ContentMD5": _md5(data), **(conditions or {})}
        return self._request("writing", "put_object", key, ok=(412,), **arguments)

    def copy(self, bucket: str, source: str, key: str, size: int) -> None:
        """Copy an object of this store to another name, with its mark.

        Large objects are copied in parts, and only if no object of that name exists.
        """
        where = {"Bucket": bucket, "Key": source}
        if size <= _COPY_BYTES:
            self._request("copying", "copy_object", key, Key=key, CopySource=where, MetadataDirective="COPY")
            return
        info = Bucket(bucket).head(source)
        if info is None:
            raise Changed(f"s3://{bucket}/{source}", "is gone")
        mark = info.mark or os.urandom(12).hex()
        upload = self.begin(key, mark)
        try:
            parts = self._copied_parts(key, upload, where, size, info.etag)
        except BaseException:
            with contextlib.suppress(OSError):  # else found and aborted when the run ends or restarts
                self.abort(key, upload)
            raise
        self.complete(key, upload, parts, mark)

    def _copied_parts(self, key: str, upload: str, where: dict[str, str], size: int, etag: str) -> list[str]:
        parts: list[str] = []
        for number, at in enumerate(range(0, size, _COPY_BYTES), 1):
            answer = self._request(
                "copying",
                "upload_part_copy",
                key,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                CopySource=where,
                CopySourceIfMatch=etag,
                CopySourceRange=f"bytes={at}-{min(size, at + _COPY_BYTES) - 1}",
            )
            parts.append(str(answer["CopyPartResult"]["ETag"]))
        return parts

    def delete(self, key: str) -> None:
        self._request("removing", "delete_object", key, ok=(404,), Key=key)

    # -- uploads in parts ---------------------------------------------------------------------------------------------
    def begin(self, key: str, mark: str) -> str:
        """Begin an upload; nothing is seen of it until it is completed.

        An upload whose answer was lost is left to `uploads`.
        """
        answer = self._request("writing", "create_multipart_upload", key, Key=key, Metadata={MARK: mark})
        return str(answer["UploadId"])

    def part(self, key: str, upload: str, number: int, data: bytes | memoryview) -> str:
        """Upload one part and return its ETag. A part that is sent again replaces itself."""
        arguments = {"UploadId": upload, "PartNumber": number, "Body": bytes(data), "ContentMD5": _md5(data)}
        return str(self._request("writing", "upload_part", key, Key=key, **arguments)["ETag"])

    def complete(self, key: str, upload: str, parts: list[str], mark: str) -> None:
        """Make an upload an object, where there is none.

        Done twice it is done once; `NameTaken` where the object is not this one.
        """
        parts_list = {"Parts": [{"PartNumber": i + 1, "ETag": etag} for i, etag in enumerate(parts)]}

        n_asked = 0

        def call() -> Any:
            nonlocal n_asked
            n_asked += 1
            # The answer was lost, or it was done in spite of a 500.
            if n_asked > 1 and (completed := self.head(key)) is not None:
                return completed if completed.mark == mark else None
            return self._ask(
                "complete_multipart_upload",
                key,
                ok=(404, 412),
                Key=key,
                UploadId=upload,
                MultipartUpload=parts_list,
                IfNoneMatch="*",
            )

        if retry.call_with_retries(call, f"writing {self.url(key)}") is not None:
            return
        completed = self.head(key)  # completed before, by a request whose answer was lost or by a run that was killed
        if completed is None:
            raise StoreError(
                f"{self.url(key)}: its upload is gone from the store and was never completed (a rule of the bucket "
                "may remove unfinished "
                "uploads too early); start over with fresh=True (--fresh)"
            )
        if completed.mark != mark:
            raise NameTaken(self.url(key))

    def abort(self, key: str, upload: str) -> None:
        self._request("removing an upload of", "abort_multipart_upload", key, ok=(404,), Key=key, UploadId=upload)

    def uploads(self, prefix: str) -> Iterator[tuple[str, str, float]]:
        """Yield the incomplete uploads of keys that begin with `prefix`: key, id, start (seconds since 1970)."""
        following = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for answer in self._pages("list_multipart_uploads", prefix, following):
            for entry in answer.get("Uploads", ()):
                if str(entry["Key"]).startswith(prefix):  # some stores do not look at the prefix
                    yield str(entry["Key"]), str(entry["UploadId"]), entry["Initiated"].timestamp()

    # -- asking -------------------------------------------------------------------------------------------------------
    def _payer(self) -> dict[str, Any]:
        return {"RequestPayer": "requester"} if self._options.requester_pays else {}

    def _request(self, doing: str, what: str, key: str, /, **arguments: Any) -> Any:
        """Send a request like `_ask`, retrying temporary failures; `doing` begins the message of a permanent one."""
        return retry.call_with_retries(lambda: self._ask(what, key, **arguments), f"{doing} {self.url(key)}")

    def _ask(self, what: str, key: str, /, *, ok: Sequence[int] = (), **arguments: Any) -> Any:
        """Send one request.

        Returns None for a response with a status in `ok`; raises Passing, Changed or StoreError for other failures.
        """
        global _used
        asker = client(self._options, keys_of(self.name))
        from botocore import exceptions

        _used = True
        try:
            return getattr(asker, what)(Bucket=self.name, **arguments)
        except exceptions.ClientError as exc:
            raised = self._judge(exc.response, key, ok)
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as exc:
            raised = StoreError(
                f"{self.url(key)}: {exc}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or, for a "
                "public bucket, storage_options={'anon': True} (--storage-option anon=true)"
            )
        except (exceptions.HTTPClientError, exceptions.ConnectionError, OSError) as exc:
            raised = retry.Temporary(str(exc))
        except exceptions.BotoCoreError as exc:
            raised = StoreError(f"{self.url(key)}: {exc}")
        if raised is not None:
            raise raised
        return None

    def _judge(self, response: dict[str, Any], key: str, ok: Sequence[int]) -> Exception | None:
        """Return the exception that an error response means; None if the error was expected."""
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(response.get("Error", {}).get("Code", ""))
        message = str(response.get("Error", {}).get("Message", "")) or code
        if status in ok or (404 in ok and code in ("NoSuchUpload", "NoSuchKey")):
            return None
        if status in _TRANSIENT or code in _TRANSIENT_CODES or (status == 409 and code != "BucketAlreadyExists"):
            return retry.Temporary(f"{status} {code}", slow_down=code in _SLOW_DOWN)
        if status in (404, 412, 416) and code != "NoSuchBucket":
            why = "is gone" if status == 404 else "changed during the run: it is not the object that was listed"
            return Changed(self.url(key), why)
        if code == "NoSuchBucket":
            return NoBucket(f"{self.url(key)}: there is no bucket {self.name!r} at this store")
        if status in (401, 403):
            return AccessDenied(
                f"{self.url(key)}: the store refuses ({code}: {message}); check the credentials and their rights"
            )
        return StoreError(f"{self.url(key)}: {status} {code}: {message}")


class S3Source:
    """One version of an object."""

    def __init__(self, bucket: Bucket, info: Object) -> None:
        self.url, self.size, self.version = bucket.url(info.key), info.size, version_of(info.etag)
        self._bucket, self._object = bucket, info

    def read_into(self, offset: int, view: memoryview) -> None:
        self._bucket.read_into(self._object.key, self._object.etag, offset, view)

    def check(self) -> Check | None:
        """Return what compares one reading of the object with its checksum, once all of it has arrived in order."""
        return None if self._object.expected is None or not self.size else _Comparison(self._bucket, self._object)


class _Comparison:
    """One reading of an object. The store is asked for the sizes of parts only where they are needed."""

    def __init__(self, bucket: Bucket, info: Object) -> None:
        assert info.expected is not None
        self._bucket, self._object, self._expected = bucket, info, info.expected
        self._part_bytes = info.size if info.expected.n_parts <= 1 else 0  # 0: not asked for yet; -1: not known
        self._running: Running | None = None

    def __call__(self, offset: int, data: memoryview) -> None:
        if self._running is None and offset == 0 and not self._part_bytes:
            self._part_bytes = self._bucket.part_size(self._object, 1)
            if self._part_bytes < 1 or -(-self._object.size // self._part_bytes) != self._expected.n_parts:
                self._part_bytes = -1
        if self._running is None:
            if offset or self._part_bytes < 0:
                return
            self._running = Running(self._expected, self._object.size, self._part_bytes)
        if not self._running.add(offset, data) and self._has_equal_parts():
            raise Damaged(
                self._bucket.url(self._object.key),
                f"what arrived is not what the store holds: the {self._expected.algorithm.upper()} of its "
                f"{self._object.size} bytes differs",
            )

    def _has_equal_parts(self) -> bool:
        """Return True if the comparison was fair: all parts are as large as the first, but the last.

        Called only after a failure.
        """
        n_parts = self._expected.n_parts
        return all(self._bucket.part_size(self._object, n) == self._part_bytes for n in range(2, n_parts))


def _streamed(read: Any, *into: memoryview) -> Any:
    """Read from the body of a response; raise Passing if the connection breaks."""
    from botocore.exceptions import BotoCoreError
    from urllib3.exceptions import HTTPError

    try:
        return read(*into)
    except (BotoCoreError, HTTPError, OSError) as exc:
        raise retry.Temporary(str(exc) or type(exc).__name__) from exc


def _md5(data: bytes | memoryview) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def check_conditions(bucket: Bucket, prefix: str) -> None:
    """See that the store honours If-None-Match: two writes of one key, of which the second must fail.

    RunConflict where it does not.

    Some stores (several that imitate S3) accept the condition and ignore it: two runs could commit over each other
    there.
    """
    key = f"{prefix}probe-{os.urandom(8).hex()}"
    bucket.put_new(key, b"first")
    try:
        bucket.put_new(key, b"second")
    except NameTaken:
        pass
    else:
        raise RunConflict(
            f"{bucket.url(prefix)}: the store ignores conditional writes (If-None-Match), so that two runs could "
            "commit over each other; write to a local folder and copy it, or use a store that honours them (AWS S3, "
            "MinIO, R2, Ceph since Squid)"
        )
    finally:
        bucket.delete(key)
