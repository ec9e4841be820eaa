#!/bin/sh
# Appends lines to the history on a branch of its own, and pushes it: push_history.sh FILE [BRANCH]
# No file of the working tree changes. Several jobs may push at once: who is second takes the other's lines, too.
set -eu
lines=$1 branch=${2:-fileperf-history}
test -s "$lines" || { echo "$lines has no lines: nothing to push"; exit 0; }
merged=$(mktemp)
trap 'rm -f "$merged"' EXIT
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32; do
    parent=
    if [ -n "$(git ls-remote origin "refs/heads/$branch")" ]; then
        git fetch --quiet origin "refs/heads/$branch"
        parent=$(git rev-parse FETCH_HEAD)
    fi
    { [ -z "$parent" ] || git show "$parent:history.jsonl"; cat "$lines"; } | awk 'NF && !seen[$0]++' > "$merged"
    tree=$(printf '100644 blob %s\thistory.jsonl\n' "$(git hash-object -w "$merged")" | git mktree)
    if [ -n "$parent" ] && [ "$tree" = "$(git rev-parse "$parent^{tree}")" ]; then exit 0; fi
    commit=$(git commit-tree "$tree" ${parent:+-p "$parent"} -m "history of load tests")
    if git push --quiet origin "$commit:refs/heads/$branch" 2> /dev/null; then exit 0; fi
    sleep "0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')"
done
echo "the branch $branch could not be pushed in 32 tries" >&2
exit 1
