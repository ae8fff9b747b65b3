#!/bin/sh
# Removes the agent; run it with sudo. Identities stay unless --remove-identity is said: then that of whoever is logged
# in goes, by that person's own rights, because root must not delete where a link of somebody else may lead.
set -u
if [ "$(id -u)" -ne 0 ]; then
    echo "Run this with sudo." >&2
    exit 1
fi
user_id=$(stat -f %u /dev/console)
launchctl bootout "gui/$user_id/org.fallow.tray" 2>/dev/null
launchctl bootout "gui/$user_id/org.fallow.agent" 2>/dev/null
if [ "${1:-}" = "--remove-identity" ] && [ "$user_id" -ne 0 ]; then
    user=$(id -nu "$user_id")
    sudo -H -u "$user" sh -c 'rm -rf "$HOME/Library/Application Support/fallow-agent"'
fi
rm -f /Library/LaunchAgents/org.fallow.agent.plist /Library/LaunchAgents/org.fallow.tray.plist
rm -rf /Applications/Fallow.app "/Library/Application Support/Fallow"
pkgutil --forget org.fallow.agent
