"""`predict job`: phases of a batch that grows, what the answer says of saves and goodput, and faults of its options in one pass."""

from tests.predict.command import Command

RUN = "configs/runs/llama3-70b-64xh100.yml"


def test_phases_have_steps_of_their_own(command: Command) -> None:
    found = command.json("job", RUN, "--tokens", "100B", "--phase", "20B batch.global=64", "--with", "kg_per_kwh=0.4")
    own, ramp = found["phases"]
    assert (own["tokens"], ramp["tokens"]) == (80e9, 20e9)
    assert ramp["steps"] == -(-20e9 // (64 * 8192))
    assert ramp["days"]["median"] / 20e9 > own["days"]["median"] / 80e9
    assert found["energy"]["co2_t"]["median"] > 0


def test_the_answer_says_when_it_saves_and_which_goodput_it_finds(command: Command) -> None:
    never = command.text("job", RUN, "--tokens", "1B", "--with", "gpu_hours_a_failure=0")
    assert "once, at the end, async" in never
    often = command.text("job", RUN, "--tokens", "100B", "--with", "save_min=60", "--with", "gpu_hours_a_failure=500")
    assert "every 1.00 h of steps, async" in often
    assert "`predict days` takes a stated one instead" in " ".join(often.split())


def test_a_job_that_saves_at_its_end_alone_says_so_however_long_failures_make_it(command: Command) -> None:
    """Its hours are twice its work, of which the interval between saves is all."""
    asked = ("job", RUN, "--tokens", "1B", "--with", "save_min=600", "--with", "gpu_hours_a_failure=150")
    assert "once, at the end, async" in command.text(*asked)
    found = command.json(*asked)
    assert sum(found["parts_hours"].values()) > 1.5 * found["parts_hours"]["steps"]


def test_all_faults_are_named_at_once(command: Command) -> None:
    asked = f"job {RUN} --tokens 2X --price 3 --with detect_mn=3 --deadline 4 --set plan.tpp=2 --phase".split()
    said = command.refused(*asked, "1B batch.globl=3")
    for named in ("2X", "--price: '3'", "did you mean 'detect_min'", "--deadline: needs --offers", "did you mean 'tp'"):
        assert named in said
    assert "--phase '1B batch.globl=3'" in said


def test_the_text_lists_the_phases_and_warns_of_one_that_does_not_fit(command: Command) -> None:
    said = command.text(
        "job", RUN, "--tokens", "100B", "--phase", "20B batch.micro=16", "--phase", "20B batch.global=64"
    )
    lines = [line.split() for line in said.splitlines()]
    assert ["as", "the", "config", "is", "60B"] in [line[:5] for line in lines]
    assert ["1.", "batch.micro=16", "20B"] in [line[:3] for line in lines if line[-1:] == ["OOM"]]
    assert ["2.", "batch.global=64", "20B"] in [line[:3] for line in lines if line[-1:] == ["FITS"]]
    assert said.startswith("OOM: llama3-70b-64xh100 needs")


def test_fewer_tokens_than_one_batch_are_noted(command: Command) -> None:
    note = "fewer than the 1.049M of one batch; is a unit missing, as in 2T?"
    assert f"2 tokens are {note}" in " ".join(command.text("job", RUN, "--tokens", "2").split())
    assert "is a unit missing" not in command.text("job", RUN, "--tokens", "2B")


def test_offers_say_whose_rows_their_times_rest_on(command: Command) -> None:
    said = command.text("job", RUN, "--tokens", "2T", "--offers", "docs/examples/offers.yml")
    assert said.startswith("No samples for profile")


def test_the_two_answers_on_a_whole_training_say_what_each_counts_and_name_the_other(command: Command) -> None:
    for name, other in (("days", "job"), ("job", "days")):
        counts = " ".join(command.text(name, RUN, "--tokens", "1B").split()).partition(" counts ")[2]
        assert "goodput" in counts and f"`predict {other}`" in counts
