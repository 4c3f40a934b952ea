#!/bin/sh
# Install Debian's chromium for the browser tests where that is possible; without it they are skipped aloud.
set -u
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi
command -v chromium >/dev/null || echo "chromium is not installed: the browser tests will not run." >&2
exit 0
