"""Fixtures: a service, a text to train on, and a spec whose step takes milliseconds."""

import os
import random
import signal

import pytest

from service_fixture import make_service


def refuse_groups(kill):
    def checked(pid, number):
        assert pid > 0, f"signal {number} would reach a group of processes, and with it the tests"
        kill(pid, number)
    return checked


def pytest_configure(config):
    os.kill = refuse_groups(os.kill)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has turned off in what it runs beside other things
    config.addinivalue_line("markers", "sanitized: also runs with the programs built with ASan+UBSan and with TSan")
    config.addinivalue_line("markers", "waits: half a minute or longer, in which others run; begins first")
    config.addinivalue_line("markers", "xdist_group: pytest-xdist's, for whoever has it")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """With pytest-xdist's `-n 4 --dist loadgroup`: files beside each other, the tests of one share its service."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)
    for item in items:
        if not item.get_closest_marker("waits"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """English-like text that every machine has, long enough to train a tiny model on: made from a small grammar."""
    draw = random.Random(7)
    words = "the a yard train engine rank shard lease step loss runs stops waits sends holds keeps every each one two".split()
    lines = [" ".join(draw.choice(words) for _ in range(draw.randint(4, 9))).capitalize() + ".\n" for _ in range(6000)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="session")
def tiny(text_file):
    """tiny(steps=40, data=2, ...): a spec whose step takes milliseconds. Keywords go to the field of that name."""
    def make(steps=40, data=1, seed=1, every=10, layers=2, width=32, **more):
        spec = {
            "name": "tiny",
            "model": {"gpt": {"layers": layers, "heads": 2, "width": width, "context": 32}},
            "data": {"text": {"files": [f"file://{text_file}"], "validation_fraction": 0.1}},
            "train": {
                "steps": steps, "global_batch": 8, "micro_batch": 2, "lanes": 4, "seed": seed,
                "optimizer": {"adamw": {"lr": 0.003}},
                "learning_rate_schedule": {"cosine": {"warmup_steps": min(5, steps), "min_lr": 0.0003}},
                "eval": {"every": 0, "batches": 2},
            },
            "parallel": {"data": data},
            "checkpoint": {"every": every, "keep_last": 3},
        }
        for key, value in more.items():
            section, _, field = key.partition("__")
            spec.setdefault(section, {})
            if field:
                spec[section][field] = value
            else:
                spec[section] = value
        return spec
    return make


@pytest.fixture
def service():
    """One executor of two slots."""
    yield from make_service(executors=1, slots=2)


@pytest.fixture
def two_hosts():
    """Two executors of one slot each: a gang of two spans both."""
    yield from make_service(executors=2, slots=1)


@pytest.fixture(scope="module")
def shared_service():
    """One service for the tests of a file that neither kill nor fill anything."""
    yield from make_service(executors=1, slots=2)
