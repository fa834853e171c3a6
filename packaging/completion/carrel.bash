# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bash completion for carrel, written by tools/make-completions

# The workspaces there are.
_carrel_ids() {
    "${COMP_WORDS[0]}" ws ls 2>/dev/null | while read -r id rest; do
        [[ $id == ID || -z $rest ]] || printf '%s\n' "$id"
    done
}

# The templates there are.
_carrel_templates() {
    "${COMP_WORDS[0]}" template list 2>/dev/null | while read -r name rest; do
        [[ $name == NAME || -z $rest ]] || printf '%s\n' "$name"
    done
}

# Adds the lines of standard input that begin with $1, without the $2 in front of them.
_carrel_add() {
    local line
    while IFS= read -r line; do
        [[ $line != "$1"* ]] || COMPREPLY+=("${line#"$2"}")
    done
}

# A place that begins with $1, which is WS:/path or a path here. The shell has cut it at the colon: $2 is in front of it.
_carrel_places() {
    local ws=${1%%:*} dir=${1#*:}
    if [[ $1 == *:* && $ws != */* ]]; then
        dir=${dir%"${dir##*/}"}
        dir=${dir:-/}
        _carrel_add "$1" "$2" < <("${COMP_WORDS[0]}" ls -p -- "$ws:$dir" 2>/dev/null | while IFS= read -r name; do
            printf '%s\n' "$ws:$dir$name"
        done)
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$1")
        _carrel_add "$1" "" < <(_carrel_ids | while read -r name; do printf '%s:\n' "$name"; done)
    fi
    [[ ${COMPREPLY[*]} != *[:/] ]] || compopt -o nospace 2>/dev/null || true
}

# The value of option $2 of verb $1, which begins with $3. Fails when the option has no value.
_carrel_value() {
    case $1,$2 in
    *,--dir | *,--spool | *,--state | run,--workspace) mapfile -t COMPREPLY < <(compgen -d -- "$3") ;;
    *,--auth | *,--ca | *,--config | *,--file | *,--from-tar | *,--head | *,--key | *,--layer | *,--layer-ro | \
        *,--policy | *,--ro | *,--rw | *,--socket | *,--stdin | \
        *,--trust) mapfile -t COMPREPLY < <(compgen -f -- "$3") ;;
    audit,--workspace | key,--workspace | mcp,--workspace) _carrel_add "$3" "" < <(_carrel_ids) ;;
    *,--actor | *,--after | *,--allow | *,--allow-private | *,--at | *,--bun | *,--check | *,--comment | \
        *,--context | *,--cpu | *,--cwd | *,--deny | *,--depth | *,--disk | *,--env | *,--files | *,--from | \
        *,--from-store | *,--glob | *,--hash | *,--if-match | *,--index | *,--into | *,--io | *,--label | *,--limit | \
        *,--link | *,--listen | *,--max-output | *,--memory | *,--mirror | *,--mode | *,--name | *,--nameserver | \
        *,--new | *,--offset | *,--old | *,--operation | *,--ours-of | *,--owner | *,--package | *,--path | \
        *,--pids | *,--pip | *,--plan-id | *,--registry | *,--result | *,--secret | *,--set | *,--signal | \
        *,--system | *,--theirs-of | *,--timeout | *,--tmp-size | *,--to | *,--until | *,--uv | *,--version | *,-C | \
        *,-c | *,-s | audit,-n | template,-f) ;;
    plan,--plan) _carrel_plan "$3" only ;;
    *,--template) _carrel_add "$3" "" < <(_carrel_templates) ;;
    *,--level) mapfile -t COMPREPLY < <(compgen -W 'auto ns dir' -- "$3") ;;
    *,--access) mapfile -t COMPREPLY < <(compgen -W 'key token' -- "$3") ;;
    *,--net) mapfile -t COMPREPLY < <(compgen -W 'none host' -- "$3") ;;
    *,--in-state) mapfile -t COMPREPLY < <(compgen -W 'open closed pending approved rejected expired queued applying applied undone stale failed' -- "$3") ;;
    *,--scope) mapfile -t COMPREPLY < <(compgen -W 'owner agent approve read user admin' -- "$3") ;;
    *,--user) mapfile -t COMPREPLY < <(compgen -W 'user root' -- "$3") ;;
    *) return 1 ;;
    esac
}

# The options of verb $1, and the words that may follow it.
_carrel_words() {
    case $1 in
    run)
        options='--workspace --create --at --level --net --allow --deny --allow-private --secret --trust --nameserver --ro --rw --layer --layer-ro --system --env --cwd --user --timeout --tmp-size --max-output --memory --pids --cpu --io --disk --files --stdin --tty --no-tty --policy --plan --plan-id --keep-open --json --explain -c --help --'
        ;;
    doctor)
        options='--package --json --state --help'
        ;;
    serve)
        options='--state --listen --socket --tls-self-signed --config --set --help'
        ;;
    ws)
        options='--policy --owner --label --link --deleted --purge --mirror --from-store --dry-run --template --python --node --json --state --help'
        words='create ls show policy rm undelete sleep services reset mirror sync backup restore adopt'
        ;;
    exec)
        options='-c --cwd --env --timeout --user --stdin --tty --background --json --state --help --'
        ;;
    shell)
        options='--cwd --env --timeout --user --state --help'
        ;;
    ps)
        options='--all --json --state --help'
        ;;
    logs)
        options='--follow --from --json --state --help'
        ;;
    kill)
        options='--signal --json --state --help'
        ;;
    ls)
        options='--long --slash --recursive --depth --json --state --help'
        ;;
    cat)
        options='--offset --limit --json --state --help'
        ;;
    put)
        options='--recursive --mode --if-match --json --state --help'
        ;;
    get)
        options='--recursive --json --state --help'
        ;;
    edit)
        options='--old --new --if-match --all --json --state --help'
        ;;
    rm)
        options='--recursive --json --state --help'
        ;;
    mv)
        options='--no-replace --json --state --help'
        ;;
    cp)
        options='--no-replace --recursive --json --state --help'
        ;;
    mkdir)
        options='--mode --json --state --help'
        ;;
    stat)
        options='--follow --json --state --help'
        ;;
    grep)
        options='--ignore-case --regex --context --limit --glob --json --state --help'
        ;;
    glob)
        options='--long --limit --json --state --help'
        ;;
    watch)
        options='--flat --json --state --help'
        ;;
    tree)
        options='--depth --json --state --help'
        ;;
    env)
        options='--version --clear --json --state --help --index --registry --ca --config --timeout --uv --pip --bun --offline'
        words='setup'
        ;;
    port)
        options='--access --list --close --json --state --help'
        ;;
    net)
        options='--json --state --help'
        words='log try'
        ;;
    secret)
        options='--file --owner --json --state --help'
        words='set ls rm'
        ;;
    store)
        options='--path --config --take-over --json --state --help'
        words='add ls check rm'
        ;;
    plan)
        options='--dir --hash --comment --check --in-state --path --operation --diff --all --keep-going --async --force -c --plan --keep-open --cwd --env --timeout --user --stdin --json --state --help --'
        words='run submit list show verify approve reject apply undo close discard cancel'
        ;;
    snapshot)
        options='--name --json --state --help'
        words='create ls show diff restore rm'
        ;;
    fork)
        options='--json --state --help'
        ;;
    diff)
        options='--json --state --help'
        ;;
    merge)
        options='--into --ours --theirs --ours-of --theirs-of --json --state --help'
        ;;
    template)
        options='--update-lock -f --offline --quiet --json --state --help'
        words='build list show rm'
        ;;
    base)
        options='--mirror --from-tar --config --json --state --help'
        words='build'
        ;;
    mcp)
        options='--workspace --state --help'
        ;;
    key)
        options='--owner --name --scope --workspace --template --policy --json --state --help'
        words='create ls revoke'
        ;;
    events)
        options='--json --state --help'
        ;;
    audit)
        options='--follow -n --workspace --operation --actor --result --from --to --after --until --head --key --remote --pem --index --auth --ca --gzip --spool --json --state --help'
        words='tail verify key export'
        ;;
    esac
}

# What may be done to plans comes first, then the workspace (or --dir), then the plan. $1 is the word; $2: it is a plan.
_carrel_plan() {
    local i words=() where=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --dir) where=(--dir "${COMP_WORDS[i + 1]}") && i=$((i + 1)) ;;
        --hash | --comment | --check | --in-state | --path | --operation | -c | --plan | --cwd | --env | --timeout | --user | --stdin | --state) i=$((i + 1)) ;;
        -*) ;;
        *) words+=("${COMP_WORDS[i]}") ;;
        esac
    done
    if ((${#where[@]} == 0 && ${#words[@]} > 1)); then
        where=("${words[1]}")
        words=("${words[0]}" "${words[@]:2}")
    fi
    if ((${#words[@]} == 0)); then
        mapfile -t COMPREPLY < <(compgen -W 'run submit list show verify approve reject apply undo close discard cancel' -- "$1")
    elif ((${#where[@]} == 0)); then
        [[ -n ${2-} ]] || _carrel_add "$1" "" < <(_carrel_ids)
    elif [[ -n ${2-} || ${words[0]} != @(run|submit|list) ]] && ((${#words[@]} == 1)); then
        _carrel_add "$1" "" < <("${COMP_WORDS[0]}" plan list "${where[@]}" 2>/dev/null | while read -r id rest; do
            [[ $id == PLAN || -z $rest ]] || printf '%s\n' "$id"
        done)
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$1")
    fi
}

_carrel() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} i front='' options words
    COMPREPLY=()
    # --name=value comes as three words: --name, =, value.
    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    # So does WS:/path: WS, :, /path.
    if ((COMP_CWORD > 2)) && [[ $cur == : ]]; then
        front=$prev: cur='' prev=${COMP_WORDS[COMP_CWORD - 2]}
    elif ((COMP_CWORD > 3)) && [[ $prev == : ]]; then
        front=${COMP_WORDS[COMP_CWORD - 2]}: prev=${COMP_WORDS[COMP_CWORD - 3]}
    fi
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run doctor serve ws exec shell ps logs kill ls cat put get edit rm mv cp mkdir stat grep glob watch tree env port net secret store plan snapshot fork diff merge template base mcp key events audit help version --help --version' -- "$cur")
        return
    fi
    # After `--` comes the command line of another program.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            declare -F _command_offset >/dev/null && _command_offset $((i + 1))
            return
        fi
    done
    _carrel_value "$verb" "$prev" "$cur" && return
    options='' words=''
    _carrel_words "$verb"
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    case $verb,$prev in
    plan,*) _carrel_plan "$cur" ;;
    template,build) mapfile -t COMPREPLY < <(compgen -W 'minimal office' -- "$cur" && compgen -f -- "$cur") ;;
    template,show | template,rm) _carrel_add "$cur" "" < <(_carrel_templates) ;;
    ws,adopt) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    env,env) _carrel_add "$cur" "" < <(_carrel_ids && echo setup) ;;
    env,*) mapfile -t COMPREPLY < <(compgen -W 'python node' -- "$cur") ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        case $verb in
        ls | cat | put | get | edit | rm | mv | cp | mkdir | stat | grep | glob | watch | tree | doctor) _carrel_places "$front$cur" "$front" ;;
        exec | shell | ps | logs | kill | events | env | port | ws | merge | diff) _carrel_add "$cur" "" < <(_carrel_ids) ;;
        esac
        ;;
    esac
}
complete -o filenames -F _carrel carrel
