"""Every command answers with a result on standard output, or with one line on standard error and exit code 2."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

import serpette
from serpette.cli import app, main
from serpette.records import MANIFEST, Cost, Plan, Profile, Pruning, Scan, Scores
from tiny import HF, TIMM, image_folder, named, plain_folder, tiny

CLASSES = ("ash", "birch", "cedar")


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Answer]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process."""

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["serpette", *map(str, arguments)])
        code = 0
        capsys.readouterr()
        try:
            main()
        except SystemExit as done:
            code = int(done.code or 0)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = {split: dict.fromkeys(CLASSES, 4) for split in ("train", "val", "test")}
    return image_folder(tmp_path_factory.mktemp("data") / "trees", counts)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serpette.save(named(tiny(TIMM), CLASSES), tmp_path_factory.mktemp("models") / "dense")


@pytest.fixture(scope="module")
def profile(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serpette.measure(model, data, images=6).save(tmp_path_factory.mktemp("profiles") / "profile.json")


# The main path, command by command


def test_scan_prints_the_record_alone(run: Run, data: Path, tmp_path: Path) -> None:
    answer = run("scan", data, "--json", "-o", tmp_path / "scan.json")
    assert answer.code == 0
    assert answer.err == ""
    scan = Scan.from_json(answer.out)
    assert scan == Scan.load(tmp_path / "scan.json")
    assert [split.n for split in scan.splits] == [12, 12, 12]
    assert "cedar" in run("scan", data).out


def test_measure_writes_a_profile_and_a_heatmap(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    answer = run("measure", model, "--data", data, "--limit", 6, "-o", tmp_path / "p.json", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert Profile.from_json(answer.out) == Profile.load(tmp_path / "p.json")
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_plan_writes_what_it_prints(run: Run, profile: Path, tmp_path: Path) -> None:
    answer = run("plan", profile, "--method", "block", "--drop", 1, "-o", tmp_path / "plan.json", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert Plan.from_json(answer.out) == Plan.load(tmp_path / "plan.json")
    assert "remove block " in run("plan", profile, "--method", "block", "-n", 1, "-o", tmp_path / "plan.json").out


def test_prune_saves_by_a_plan_file_or_by_names(run: Run, model: Path, tmp_path: Path) -> None:
    Plan(drop_blocks=(1,)).save(tmp_path / "plan.json")
    answer = run("prune", model, tmp_path / "plan.json", "-o", tmp_path / "a", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert Pruning.from_json(answer.out).form == "timm"
    answer = run("prune", model, "-o", tmp_path / "b", "--drop-block", "0,1", "--drop-attention", 3, "--drop-mlp", 2)
    assert answer.code == 0
    assert "removed block 0, block 1, attention of block 3, mlp of block 2" in answer.out
    assert Pruning.load(tmp_path / "b" / MANIFEST).half_blocks == {0: "attention", 1: "mlp"}


def test_eval_prints_the_scores(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    answer = run("eval", model, "--data", data, "--json", "-o", tmp_path / "s.json")
    assert (answer.code, answer.err) == (0, "")
    scores = Scores.from_json(answer.out)
    assert scores == Scores.load(tmp_path / "s.json")
    assert (scores.n, scores.head) == (12, "own")


def test_bench_prints_costs_and_rows(run: Run, model: Path, tmp_path: Path) -> None:
    quick = ("--no-energy", "--repeats", 2, "-b", 2, "--json")
    answer = run("bench", model, *quick, "--csv", tmp_path / "rows.csv")
    assert (answer.code, answer.err) == (0, "")
    assert Cost.from_json(answer.out).infer_batch_size == 2
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))) == 1
    assert Cost.from_json(run("bench", model, "--against", model, *quick).out).param_reduction == 0


def test_predict_prints_lines_json_or_csv(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("<html>")
    given = (data / "test" / "ash", tmp_path / "bad.png")
    answer = run("predict", model, *given, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert len(found) == 5
    assert {p["label"] for p in found} <= {*CLASSES, None}
    assert found[-1]["error"] == "it is an HTML page"
    rows = list(csv.DictReader(io.StringIO(run("predict", model, *given, "--csv").out)))
    assert [row["path"] for row in rows] == [p["path"] for p in found]
    assert len(run("predict", model, *given).out.splitlines()) == 5


def test_select_writes_a_model_that_predicts(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    options = ("--methods", "block", "--drops", "1", "--images", 4, "--repeats", 2, "--json")
    answer = run("select", model, "--data", data, "-o", tmp_path / "run", *options)
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["kind"] == "selection"
    few = run("predict", tmp_path / "run" / "model", data / "test", "--json", "--limit", 2)
    assert len(json.loads(few.out)) == 2


# Bad input

BAD = {
    "no such command": ("explode",),
    "no such option": ("scan", "demo", "--explode"),
    "no arguments": ("measure",),
    "no data": ("measure", "{model}"),
    "missing model": ("measure", "{tmp}/nowhere", "--data", "{data}"),
    "unknown timm model": ("measure", "timm:vit_tiny_patch16_22", "--data", "{data}"),
    "model of no classifier": ("predict", "{headless}", "{data}"),
    "missing data": ("eval", "{model}", "--data", "{tmp}/nowhere"),
    "data of no dataset": ("eval", "{model}", "--data", "{text}"),
    "unknown split": ("eval", "{model}", "--data", "{data}", "--split", "holdout"),
    "unknown head": ("eval", "{model}", "--data", "{data}", "--head", "best"),
    "classes that the head lacks": ("eval", "{other}", "--data", "{data}", "--head", "own"),
    "no base": ("eval", "{other}", "--data", "{data}", "--head", "frozen", "--base", "{tmp}/nowhere"),
    "unknown device": ("eval", "{model}", "--data", "{data}", "--device", "abacus"),
    "absent device": ("eval", "{model}", "--data", "{data}", "--device", "cuda:77"),
    "unknown dtype": ("eval", "{model}", "--data", "{data}", "--dtype", "int3"),
    "no images": ("eval", "{model}", "--data", "{data}", "--limit", "0"),
    "image size of nothing": ("eval", "{model}", "--data", "{data}", "--image-size", "3"),
    "missing profile": ("plan", "{tmp}/nowhere.json", "--method", "block", "--drop", "1"),
    "profile that is a folder": ("plan", "{tmp}", "--method", "block", "--drop", "1"),
    "another record": ("plan", "{plan}", "--method", "block", "--drop", "1"),
    "truncated JSON": ("plan", "{truncated}", "--method", "block", "--drop", "1"),
    "text": ("plan", "{text}", "--method", "block", "--drop", "1"),
    "bytes": ("plan", "{bytes}", "--method", "block", "--drop", "1"),
    "unknown method": ("plan", "{profile}", "--method", "best", "--drop", "1"),
    "drop of nothing": ("plan", "{profile}", "--method", "block", "--drop", "0"),
    "drop of everything": ("plan", "{profile}", "--method", "block", "--drop", "4"),
    "drop of letters": ("plan", "{profile}", "--method", "block", "--drop", "all"),
    "protect of letters": ("plan", "{profile}", "--method", "block", "--drop", "1", "--protect", "a"),
    "protect of no block": ("plan", "{profile}", "--method", "block", "--drop", "1", "--protect", "9"),
    "unwritable plan": ("plan", "{profile}", "--method", "block", "--drop", "1", "-o", "{text}/plan.json"),
    "plan over a folder": ("plan", "{profile}", "--method", "block", "--drop", "1", "-o", "{data}"),
    "no sites": ("prune", "{model}", "-o", "{tmp}/out"),
    "sites twice": ("prune", "{model}", "{plan}", "-o", "{tmp}/out", "--drop-block", "1"),
    "no out": ("prune", "{model}", "{plan}"),
    "plan that is a profile": ("prune", "{model}", "{profile}", "-o", "{tmp}/out"),
    "plan of another depth": ("prune", "{model}", "{deep}", "-o", "{tmp}/out"),
    "block beyond the end": ("prune", "{model}", "-o", "{tmp}/out", "--drop-block", "4"),
    "negative block": ("prune", "{model}", "-o", "{tmp}/out", "--drop-block", "-1"),
    "block named twice": ("prune", "{model}", "-o", "{tmp}/out", "--drop-block", "1,1"),
    "every block": ("prune", "{model}", "-o", "{tmp}/out", "--drop-block", "0,1,2,3"),
    "blocks of letters": ("prune", "{model}", "-o", "{tmp}/out", "--drop-block", "one"),
    "somebody else's folder": ("prune", "{model}", "{plan}", "-o", "{data}"),
    "out that is a file": ("prune", "{model}", "{plan}", "-o", "{text}"),
    "out below a file": ("prune", "{model}", "{plan}", "-o", "{text}/out"),
    "pruned already": ("prune", "{pruned}", "{plan}", "-o", "{tmp}/out"),
    "damaged folder": ("prune", "{damaged}", "{plan}", "-o", "{tmp}/out"),
    "unwritable scan": ("scan", "{data}", "-o", "{text}/scan.json"),
    "two forms of output": ("predict", "{model}", "{data}", "--json", "--csv"),
    "missing image": ("predict", "{model}", "{tmp}/nowhere.png"),
    "unknown methods": ("select", "{model}", "--data", "{data}", "-o", "{tmp}/run", "--methods", "block,best"),
    "drops of letters": ("select", "{model}", "--data", "{data}", "-o", "{tmp}/run", "--drops", "a"),
    "run below a file": ("select", "{model}", "--data", "{data}", "-o", "{text}/run"),
    "sizes that differ": ("bench", "{model}", "--against", "timm:vit_tiny_patch16_224", "--random-weights"),
}


@pytest.fixture(scope="module")
def places(model: Path, data: Path, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tmp = tmp_path_factory.mktemp("bad")
    plan = Plan(drop_blocks=(1,)).save(tmp / "plan.json")
    (tmp / "truncated.json").write_text(profile.read_text()[:500])
    (tmp / "text.txt").write_text("hello")
    (tmp / "bytes.json").write_bytes(b"\xff\xfe\x00")
    damaged = serpette.save(tiny(TIMM), tmp / "damaged")
    (damaged / "config.json").write_text("{}")
    return {
        "model": model,
        "data": data,
        "profile": profile,
        "tmp": tmp,
        "plan": plan,
        "truncated": tmp / "truncated.json",
        "text": tmp / "text.txt",
        "bytes": tmp / "bytes.json",
        "deep": Plan(drop_blocks=(1,), depth=12).save(tmp / "deep.json"),
        "pruned": serpette.save(serpette.prune(tiny(TIMM), Plan(drop_attention=(1,))), tmp / "pruned"),
        "damaged": damaged,
        "headless": plain_folder(tiny("timm-vit-no-head"), tmp / "headless"),
        "other": serpette.save(named(tiny(HF), ("oak", "elm")), tmp / "other"),
    }


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(case: str, run: Run, places: dict[str, Path], monkeypatch) -> None:
    monkeypatch.chdir(places["tmp"])
    answer = run(*(part.format(**places) for part in BAD[case]))
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1, answer.err
    assert answer.err.endswith("\n")
    assert "Traceback" not in answer.err
    assert not (places["tmp"] / "out").exists()


def test_an_interrupt_gives_exit_code_130(run: Run, model: Path, data: Path, monkeypatch) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("serpette.data.scan.scan", interrupt)
    answer = run("scan", data)
    assert answer.code == 130
    assert answer.err.count("\n") == 1


# Help

OPTIONS = {
    "scan": "--class-level --json --limit --on-bad --on-unknown --out --seed",
    "measure": "--batch-size --class-level --data --device --dtype --image-size --images --json --limit --on-bad"
    " --on-unknown --out --random-weights --seed --tokens",
    "plan": "--drop --json --method --out --protect --seed --unit",
    "prune": "--device --drop-attention --drop-block --drop-mlp --dtype --image-size --json --out --random-weights",
    "eval": "--base --batch-size --class-level --data --device --dtype --fit --head --image-size --json --limit"
    " --on-bad --on-unknown --out --seed --split",
    "bench": "--against --batch-size --csv --device --dtype --energy --image-size --json --out --random-weights"
    " --repeats --seed",
    "select": "--batch-size --class-level --data --device --drops --dtype --head --image-size --images"
    " --images-search --json --limit --max-loss --methods --on-bad --on-unknown --out --repeats --rule --seed",
    "predict": "--batch-size --csv --device --dtype --image-size --json --limit",
}


def test_the_commands_and_their_options_are_these() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = {
        name: sorted(option for parameter in command.params for option in parameter.opts if option.startswith("--"))
        for name, command in commands.items()
    }
    assert found == {name: sorted(options.split()) for name, options in OPTIONS.items()}


@pytest.mark.parametrize("command", ["", *OPTIONS])
def test_every_command_has_help(command: str, run: Run) -> None:
    answer = run(*command.split(), "--help")
    assert answer.code == 0
    assert "Usage: serpette" in answer.out


def test_without_arguments_the_help_is_printed(run: Run) -> None:
    answer = run()
    assert answer.code == 0
    assert "predict" in answer.out


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").out.strip() == serpette.__version__


def test_help_as_a_module_imports_no_heavy_library() -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['serpette', '--help']\n"
        "try: runpy.run_module('serpette', run_name='__main__')\n"
        "except SystemExit as done: assert not done.code\n"
        "print(*{m.partition('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: serpette" in found.stdout
    assert {"torch", "timm", "transformers", "numpy", "matplotlib"}.isdisjoint(found.stderr.split())


def test_a_process_exits_with_2_and_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "serpette", "plan", str(tmp_path / "nowhere"), "--method", "block", "--drop", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    assert "No such file or directory" in found.stderr


def test_a_reader_that_stops_reading_is_no_error() -> None:
    command = f"{sys.executable} -m serpette scan demo --limit 1000 --json | head -c 1"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert found.stdout == "{"
    assert "Traceback" not in found.stderr
    assert "error" not in found.stderr
