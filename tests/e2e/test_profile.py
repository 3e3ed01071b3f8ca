"""Profiles and gradient norms, as a user reads them."""

import json


def test_a_profile_is_brought_back_as_tables_and_traces(shared_service, tiny, tmp_path):
    job = shared_service.submit(tiny(steps=12, data=2), "--profile", "3..5")
    shared_service.wait_end(job)
    shown = shared_service.cli("profile", job).stdout
    assert "rank 0" in shown and "rank 1" in shown and "attention" in shown
    only = shared_service.cli("profile", job, "--rank", "1").stdout
    assert "rank 1" in only and "rank 0" not in only
    done = shared_service.cli("profile", job, "--rank", "7", status=4)
    assert "no profile of rank 7" in done.stderr
    shared_service.cli("profile", job, "--save", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"rank-{r}.{e}" for r in (0, 1) for e in ("json", "txt")]
    events = json.loads((tmp_path / "rank-0.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert any(e.get("ph") == "X" for e in events)


def test_a_job_without_a_profile_says_so(shared_service, tiny):
    job = shared_service.submit(tiny(steps=2))
    shared_service.wait_end(job)
    done = shared_service.cli("profile", job, status=1)
    assert "asks for none" in done.stderr


def test_gradient_norms_come_by_parameter_when_asked(shared_service, tiny):
    job = shared_service.submit(tiny(steps=10, train__inspect={"gradients_every": 5}))
    shared_service.wait_end(job)
    series = shared_service.json("metrics", job)["series"]
    norms = {s["name"]: s for s in series if s["name"].startswith("grad_norm/")}
    assert len(norms) > 10, sorted(s["name"] for s in series)
    for name in norms:
        assert sorted(shared_service.metric(job, name)) == [5, 10], name
    total = shared_service.metric(job, "grad_norm")
    squares = sum(shared_service.metric(job, name)[10] ** 2 for name in norms)
    assert abs(squares ** 0.5 - total[10]) < 1e-5 * total[10]


def test_more_parameters_than_a_record_holds_are_all_told(shared_service, tiny):
    job = shared_service.submit(tiny(steps=2, layers=8, train__inspect={"gradients_every": 1}))
    shared_service.wait_end(job)
    names = [s["name"] for s in shared_service.json("metrics", job)["series"] if s["name"].startswith("grad_norm/")]
    assert len(names) == 4 + 8 * 12, names
