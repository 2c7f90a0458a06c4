"""`nmt`, and `python -m nmt`: an interrupt ends it without a traceback also while the command line is being loaded."""

import signal


def main() -> None:
    # Where the caller has it ignored, as under nohup, it stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from nmt.cli import app, faults_reported

    with faults_reported():  # also of what is printed before a command runs, as help is
        app()


if __name__ == "__main__":
    main()
