#!/bin/sh
# What Fallow.app runs. The program itself lies beside the agent, with which it shares its libraries.
exec "/Library/Application Support/Fallow/Agent/fallow-tray" "$@"
