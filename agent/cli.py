"""`fallow-agent`: enrol this PC, run the agent without a window, ask how it is and tell it what to do.

Exit codes: 0 fine, 1 unexpected, 2 wrong usage, 3 not running, and those of the errors: 10 invite,
11 identity, 12 enrolment, 13 link, 14 refused, 15 settings, 16 disk, 17 data folder in use, 18 the running agent cannot
be reached, 19 it said no.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import psutil

from agent import cli_log, cli_support
from agent.cli_control import add_commands, ask_status, status_lines
from agent.cli_enrol import add_enrol, identity_for_run
from agent.cli_update import add_update, run_with_updates
from agent.control.errors import ControlError, ControlUnavailable
from agent.link.approval import awaited
from agent.link.errors import LinkError
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.link.store_errors import StoreError
from agent.logs.handlers import set_up, tear_down
from agent.settings import (
    LOG_NAME,
    AgentSettings,
    AgentState,
    SettingsError,
    default_data_folder,
    load_settings,
    lock_folder,
    read_state,
)
from agent.support.bundle import SupportError
from agent.update.permission import Means
from agent.update.proof import Trial

log = logging.getLogger(__name__)

EXIT_NOT_RUNNING = 3
EXIT_DISK = 16


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = build_parser().parse_args(argv)
    options.arguments = sys.argv[1:] if argv is None else argv
    set_up(level=options.log_level or options.log_default, form=options.log_format)
    try:
        return int(options.command(options))
    except (LinkError, SettingsError, ControlError) as error:
        return _fail(str(error), error.exit_code)
    except SupportError as error:
        return _fail(str(error), error.exit_code)
    except StoreError as error:
        return _fail(str(error), EXIT_DISK)
    except KeyboardInterrupt:
        return _fail("Stopped.", 130)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _fail(f"The disk is full{where}; free some space and try again.", EXIT_DISK)
        reason = error.strerror or type(error).__name__
        return _fail(f"A file cannot be used: {reason}{where}; check disk and permissions.", EXIT_DISK)
    finally:
        tear_down()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="fallow-agent", description="Let this PC serve a stage of a large model.")
    parser.add_argument("--version", action="version", version=f"fallow-agent {version('fallow')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data", type=Path, default=default_data_folder(), metavar="DIR", help="the data folder")
    cli_log.add_log_options(common)
    common.set_defaults(log_default="INFO")

    add_enrol(commands, common)
    _add_run(commands, common)
    asking = commands.add_parser("status", parents=[common], help="show how the running agent is")
    asking.add_argument("--json", action="store_true", help="print one JSON object")
    asking.set_defaults(command=_status)

    examining = commands.add_parser("doctor", parents=[common], help="find out what is wrong, and what to do")
    examining.add_argument("--json", action="store_true", help="print one JSON object")
    # What goes wrong is in its findings already.
    examining.set_defaults(command=_doctor, log_default="ERROR")

    add_commands(commands, common)
    add_update(commands, common)
    cli_log.add_commands(commands, common)
    cli_support.add_commands(commands, common)
    seeing = commands.add_parser("probes", parents=[common], help="show what the agent sees of this PC, live")
    seeing.add_argument("--json", action="store_true", help="print one JSON object, once")
    seeing.set_defaults(command=_probes)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    running = commands.add_parser("run", parents=[common], help="serve until stopped")
    running.add_argument(
        "--invite-file",
        type=_file,
        metavar="FILE",
        help="join with this invite first if this PC is in no fleet; the file is deleted then",
    )
    running.add_argument(
        "--wait",
        action="store_true",
        help="without an identity, run all the same and wait for one: from the invite file, the tray or `enrol`",
    )
    running.add_argument(
        "--volunteer",
        choices=["away", "always"],
        help="away: only while nobody needs this PC (default); always: for machines nobody sits at",
    )
    running.add_argument("--memory-mb", type=int, metavar="N", help="what a stage may use at most")
    running.add_argument("--threads", type=int, metavar="N", help="computing threads")
    running.add_argument("--cores", type=_cores, metavar="0,1", help="pin computing to these cores")
    cli_log.add_log_file(running, LOG_NAME)
    running.set_defaults(command=_run)


def _file(text: str) -> Path:
    """Read a path; a scheduled task of Windows hands over %ProgramData% as it was written."""
    return Path(os.path.expandvars(text))


def _cores(text: str) -> list[int]:
    try:
        return [int(core) for core in text.split(",") if core.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError("cores are numbers separated by commas, like 0,1") from None


def _run(options: argparse.Namespace) -> int:
    options.data.mkdir(parents=True, exist_ok=True)
    settings = load_settings(
        options.data,
        volunteer=options.volunteer,
        memory_mb=options.memory_mb,
        threads=options.threads,
        cores=options.cores,
    )

    def serve(means: Means, trial: Trial | None) -> bool:
        with lock_folder(options.data):
            _log_into_a_file(options)
            found = identity_for_run(options.data, options.invite_file, wait=options.wait)
            return _serve(options, found, settings, means, trial)

    return run_with_updates(options.arguments, serve)


def _log_into_a_file(options: argparse.Namespace) -> None:
    """Raises OSError."""
    file = options.log_file or options.data / LOG_NAME
    set_up(level=options.log_level or "INFO", form=options.log_format, file=file, stderr=options.log_file is None)


def _serve(
    options: argparse.Namespace,
    found: tuple[Identity | None, str],
    settings: AgentSettings,
    means: Means,
    trial: Trial | None,
) -> bool:
    """Run until stopped; returns whether the program is to be started again."""
    # The links take a moment to import; the other commands do without.
    from agent.program import Program
    from agent.stage import affinity
    from agent.stopping import stopped_by_signals

    identity, why_none = found
    if settings.cores:
        # Links on a core that computes cost a quarter of its tokens per second.
        affinity.pin_this_thread(affinity.other_cores(settings.cores))

    async def serve() -> bool:
        program = Program(
            options.data, settings, Keystore("agent"), identity,
            why_none=why_none, invite_file=options.invite_file, means=means, trial=trial,
        )  # fmt: skip
        if trial is not None:
            loop = asyncio.get_running_loop()
            trial.end_with_parent(lambda: loop.call_soon_threadsafe(program.stop))
        with stopped_by_signals(program.stop):
            await program.run()
        return program.restarts

    return asyncio.run(serve())


def _status(options: argparse.Namespace) -> int:
    state = read_state(options.data)
    running = state is not None and state.link != "stopped" and _is_running(state)
    try:
        status = ask_status(options.data)
    except ControlUnavailable as error:
        log.warning("%s", error)
        status = None
    if options.json:
        shown = {"running": running, "state": msgspec.to_builtins(state), "status": msgspec.to_builtins(status)}
        print(json.dumps(shown))
    elif status is not None:
        running = True
        print("\n".join(status_lines(status)))
    elif not running and (waiting := awaited(options.data / "identity")) is not None:
        # An agent that has nothing to do but wait for that answers no questions, so it may well be running.
        print(
            f"This PC waits for an administrator's approval; its code is {waiting.device_code}. It goes on waiting "
            "whenever the agent runs."
        )
    elif state is None:
        print("The agent has not run yet; start it with `fallow-agent run`.")
    elif not running:
        print(f"The agent is not running. {state.message}".rstrip())
    else:
        print(f"The agent is {state.link} ({state.console_url}) as device {state.device_id}. {state.message}".rstrip())
        for stage in state.stages:
            print(
                f"  pipeline {stage.pipeline}, stage {stage.stage}: layers {stage.first} to {stage.last - 1}, "
                f"{stage.engine} on {stage.device}"
            )
    return 0 if running else EXIT_NOT_RUNNING


def _doctor(options: argparse.Namespace) -> int:
    # OpenVINO takes a moment to import; the other commands do without.
    from agent.doctor.examination import examine_agent
    from agent.doctor.findings import as_lines, exit_code

    options.data.mkdir(parents=True, exist_ok=True)
    findings = asyncio.run(examine_agent(options.data, Keystore("agent")))
    if options.json:
        print(json.dumps({"findings": msgspec.to_builtins(findings)}))
    else:
        print("\n".join(as_lines(findings)))
    return exit_code(findings)


def _probes(options: argparse.Namespace) -> int:
    from agent.cli_probes import show_probes

    return show_probes(options)


def _is_running(state: AgentState) -> bool:
    """Whether the process that wrote the state still runs; its id may belong to a younger process by now."""
    try:
        return psutil.Process(state.process_id).create_time() <= state.updated_s + 1
    except psutil.Error:
        return False


def _fail(sentence: str, code: int) -> int:
    print(f"fallow-agent: {sentence}", file=sys.stderr)
    return code
