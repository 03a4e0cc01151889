"""Workers of a client: processes of their own, each with its GPU and its memory.

And what runs take from an open one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tamis.backends.client import default_settings
from tamis.errors import UsageError, WorkerError
from tamis.memory.gpu_pools import Pools
from tamis.utils.distributed_utils import Client, get_client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-x")
        with get_client(cluster_type="gpu", threads_per_worker=2) as made:
            yield made


def test_there_is_one_worker_per_gpu_which_it_alone_sees(client: Client) -> None:
    def seen() -> list[str]:
        return [os.environ[n] for n in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")]

    assert client.n_workers == 2
    assert client.run(seen) == {0: ["3", "2"], 1: ["GPU-x", "2"]}
    assert repr(client) == "Client(2 workers: GPU 3, GPU GPU-x)"


def test_functions_of_a_script_are_called_there_and_what_they_raise_comes_back(client: Client) -> None:
    offset = 10
    made = client.gather(client.map(lambda a, b: (a + b + offset, os.getpid()), [1, 2, 3], [4, 5, 6]))
    assert [n for n, _ in made] == [15, 17, 19]
    assert os.getpid() not in {pid for _, pid in made}
    with pytest.raises(ZeroDivisionError):
        client.submit(lambda: 1 / 0).result()
    with pytest.raises(RuntimeError, match="cannot be sent back"):
        client.submit(threading.Lock).result()


def test_runs_take_their_defaults_from_an_open_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    before = default_settings()
    with get_client("gpu", rmm_maximum_pool_size="40GB"):
        assert default_settings() == {"gpu_memory": 40_000_000_000}
        with get_client(n_workers=3):
            assert default_settings() == {"workers": 3}
        assert default_settings() == {"gpu_memory": 40_000_000_000}
    assert default_settings() == before


def test_a_worker_that_dies_is_reported_and_a_closed_client_says_so() -> None:
    with get_client(n_workers=1) as own, pytest.raises(WorkerError, match="worker 0 of the client died, status 5"):
        own.submit(os._exit, 5).result()
    with pytest.raises(UsageError, match="this client is closed"):
        own.submit(os.getpid)


def test_without_a_gpu_there_is_a_worker_on_the_cpu(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [w.device for w in get_client("gpu").workers] == [""]
    assert "this machine has no GPU" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cluster_type": "tpu"}, "must be 'cpu' or 'gpu'"),
        ({"scheduler_address": "tcp://x:1"}, "no scheduler of Dask"),
        ({"protocol": "ucx"}, "workers exchange nothing"),
        ({"n_workers": 0}, "n_workers: expected a whole number"),
        ({"rmm_pool_size": "lots"}, "rmm_pool_size"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        get_client(**wrong)


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names, __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, name, module)


def test_memory_is_a_pool_of_rmm_where_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    mr = SimpleNamespace(
        CudaAsyncMemoryResource=lambda **settings: calls.append(settings) or "async",
        LimitingResourceAdaptor=lambda of, allocation_limit: (of, allocation_limit),
        set_current_device_resource=calls.append,
    )
    fake(monkeypatch, "rmm", mr=mr, reinitialize=lambda **settings: calls.append(settings))
    fake(monkeypatch, "cudf", set_option=lambda *option: calls.append(option))
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert Pools(1 << 30, 10**10).set_up() == ["a pool of RMM", "cuDF spills"]
    assert calls == [
        {"initial_pool_size": 1 << 30, "release_threshold": None},
        ("async", 9_400_000_000 // 256 * 256),
        ("spill", True),
    ]
    calls.clear()
    Pools(1 << 30, is_managed=True, spills=False).set_up()
    assert calls == [
        {"pool_allocator": True, "managed_memory": True, "initial_pool_size": 1 << 30, "maximum_pool_size": None}
    ]


def test_else_it_is_the_limits_of_torch_and_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Device:
        mem_info = (0, 80 * 10**9)

        def __init__(self, number: int) -> None: ...
        def __enter__(self) -> Device:
            return self

        def __exit__(self, *exc: object) -> None: ...

    pool = SimpleNamespace(set_limit=lambda size: told.append(size))
    cuda = SimpleNamespace(
        device_count=lambda: 1,
        get_device_properties=lambda _: SimpleNamespace(total_memory=80 * 10**9),
        set_per_process_memory_fraction=lambda share, device: told.append((round(share, 4), device)),
    )
    fake(monkeypatch, "torch", cuda=cuda)
    runtime = SimpleNamespace(getDeviceCount=lambda: 1)
    fake(
        monkeypatch, "cupy", cuda=SimpleNamespace(runtime=runtime, Device=Device), get_default_memory_pool=lambda: pool
    )
    monkeypatch.setitem(sys.modules, "rmm", None)
    assert Pools(limit_bytes=40 * 10**9).set_up() == ["the limit of torch", "the limit of cupy"]
    assert told == [(round(39.4 / 80, 4), 0), 39_400_000_000]
    assert Pools().set_up() == []
