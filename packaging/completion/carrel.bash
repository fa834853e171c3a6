# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bash completion for carrel

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

# The verbs on files: $1 the verb, $2 the word before, $3 the word, $4 what the shell has cut off in front of it.
_carrel_files() {
    local words
    case $2 in
    --state) mapfile -t COMPREPLY < <(compgen -d -- "$3") && return ;;
    --depth | --offset | --limit | --mode | --if-match | --old | --new | --context | --glob | -C) return ;;
    esac
    [[ $3 == -* ]] || { _carrel_places "$4$3" "$4" && return; }
    case $1 in
    ls) words='--long --slash --recursive --depth --json --state --help' ;;
    cat) words='--offset --limit --json --state --help' ;;
    put) words='--recursive --mode --if-match --json --state --help' ;;
    get) words='--recursive --json --state --help' ;;
    edit) words='--old --new --all --if-match --json --state --help' ;;
    rm) words='--recursive --json --state --help' ;;
    mv) words='--no-replace --json --state --help' ;;
    cp) words='--recursive --no-replace --json --state --help' ;;
    mkdir) words='--mode --json --state --help' ;;
    stat) words='--follow --json --state --help' ;;
    grep) words='--regex --ignore-case --context --glob --limit --json --state --help' ;;
    glob) words='--long --limit --json --state --help' ;;
    watch) words='--flat --json --state --help' ;;
    tree) words='--depth --json --state --help' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$3")
}

# The verbs of the daemon: $1 the verb, $2 the word before, $3 the word.
_carrel_daemon() {
    local words
    case $2 in
    --state | --cwd) mapfile -t COMPREPLY < <(compgen -d -- "$3") ;;
    --policy | --stdin | --config | --socket | --ca) mapfile -t COMPREPLY < <(compgen -f -- "$3") ;;
    --user) mapfile -t COMPREPLY < <(compgen -W 'user root' -- "$3") ;;
    --template) _carrel_add "$3" "" < <(_carrel_templates) ;;
    "--workspace") _carrel_add "$3" "" < <(_carrel_ids) ;;
    --scope) mapfile -t COMPREPLY < <(compgen -W 'owner agent approve read user admin' -- "$3") ;;
    --access) mapfile -t COMPREPLY < <(compgen -W 'key token' -- "$3") ;;
    --env | --timeout | --owner | --label | --link | --from | --signal | --name | --operation | --actor | --head | \
        --listen | --set | --version | --index | --registry | --uv | --pip | --bun | -c | -n | -s) ;;
    adopt) mapfile -t COMPREPLY < <(compgen -d -- "$3") ;;
    *)
        case $1 in
        serve) words='--state --listen --socket --config --set --help' ;;
        ws) words='create ls show policy rm undelete sleep backup restore adopt --template --python --node --policy --owner --label --link --deleted --purge --dry-run --json --state --help' ;;
        exec) words='--cwd --env --timeout --user --stdin --tty --background --json --state --help -c --' ;;
        shell) words='--cwd --env --timeout --user --state --help' ;;
        env) words='setup python node --version --clear --index --registry --ca --uv --pip --bun --offline --timeout --config --json --state --help' ;;
        port) words='--access --list --close --json --state --help' ;;
        net) words='log try --json --state --help' ;;
        ps) words='--all --json --state --help' ;;
        logs) words='--follow --from --json --state --help' ;;
        kill) words='--signal --json --state --help' ;;
        key) words='create ls revoke --owner --scope --workspace --template --policy --name --json --state --help' ;;
        mcp) words='--workspace --state --help' ;;
        events) words='--json --state --help' ;;
        audit) words='tail verify key export --follow --workspace --operation --actor --result --from --to --after --until --head --key --remote --pem --index --auth --ca --gzip --spool --json --state --help' ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$3")
        case $1,$3 in
        *,-* | serve,* | key,* | audit,*) ;;
        *) _carrel_add "$3" "" < <(_carrel_ids) ;;
        esac
        ;;
    esac
}

# Plans: $1 the word before, $2 the word. What to do comes first, then the workspace (or --dir), then the plan.
_carrel_plan() {
    local i words=() where=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --dir) where=(--dir "${COMP_WORDS[i + 1]}") && i=$((i + 1)) ;;
        --plan | --cwd | --env | --timeout | --user | --stdin | --in-state | --path | --check | --hash | --comment | --operation | --state | -c)
            i=$((i + 1))
            ;;
        -*) ;;
        *) words+=("${COMP_WORDS[i]}") ;;
        esac
    done
    if ((${#where[@]} == 0 && ${#words[@]} > 1)); then
        where=("${words[1]}")
        words=("${words[0]}" "${words[@]:2}")
    fi
    case $1,$2 in
    --dir,* | --state,*) mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    --stdin,*) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    --user,*) mapfile -t COMPREPLY < <(compgen -W 'user root' -- "$2") ;;
    --in-state,*) mapfile -t COMPREPLY < <(compgen -W 'open closed pending approved rejected expired queued applying applied undone stale failed' -- "$2") ;;
    --cwd,* | --env,* | --timeout,* | --path,* | --check,* | --hash,* | --comment,* | --operation,* | -c,*) ;;
    *,-*) mapfile -t COMPREPLY < <(compgen -W '--dir --plan --keep-open --cwd --env --timeout --user --stdin --in-state --all --diff --path --check --hash --comment --operation --keep-going --async --force --json --state --help -c --' -- "$2") ;;
    *)
        if ((${#words[@]} == 0)); then
            mapfile -t COMPREPLY < <(compgen -W 'run submit list show verify approve reject apply undo close discard cancel' -- "$2")
        elif ((${#where[@]} == 0)); then
            _carrel_add "$2" "" < <(_carrel_ids)
        elif [[ $1 == --plan || ${words[0]} != @(run|submit|list) ]] && ((${#words[@]} == 1)); then
            _carrel_add "$2" "" < <("${COMP_WORDS[0]}" plan list "${where[@]}" 2>/dev/null | while read -r id rest; do
                [[ $id == PLAN || -z $rest ]] || printf '%s\n' "$id"
            done)
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$2")
        fi
        ;;
    esac
}

# Templates: $1 the word before, $2 the word. What to do comes first, then a template, or the file of one.
_carrel_template() {
    case $1,$2 in
    --state,*) mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    *,-*) mapfile -t COMPREPLY < <(compgen -W '--update-lock --offline --quiet --json --state --help' -- "$2") ;;
    build,*) mapfile -t COMPREPLY < <(compgen -W 'minimal office' -- "$2" && compgen -f -- "$2") ;;
    show,* | rm,*) _carrel_add "$2" "" < <(_carrel_templates) ;;
    template,*) mapfile -t COMPREPLY < <(compgen -W 'build list show rm' -- "$2") ;;
    esac
}

_carrel() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} i front=''
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
        mapfile -t COMPREPLY < <(compgen -W 'run doctor serve ws exec shell ps logs kill ls cat put get edit rm mv cp mkdir stat grep glob watch tree plan env port net template mcp key events audit help version --help --version' -- "$cur")
        return
    fi
    case $verb in
    doctor)
        case $cur in
        -*) mapfile -t COMPREPLY < <(compgen -W '--package --json --state --help' -- "$cur") ;;
        *) _carrel_places "$front$cur" "$front" ;;
        esac
        return
        ;;
    ls | cat | put | get | edit | rm | mv | cp | mkdir | stat | grep | glob | watch | tree) _carrel_files "$verb" "$prev" "$cur" "$front" && return ;;
    template) _carrel_template "$prev" "$cur" && return ;;
    run | exec | plan) ;;
    serve | ws | shell | ps | logs | kill | key | mcp | events | audit | env | port | net) _carrel_daemon "$verb" "$prev" "$cur" && return ;;
    *) return ;;
    esac
    # After `--` comes somebody else's command line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            declare -F _command_offset >/dev/null && _command_offset $((i + 1))
            return
        fi
    done
    [[ $verb != plan ]] || { _carrel_plan "$prev" "$cur" && return; }
    [[ $verb == run ]] || { _carrel_daemon "$verb" "$prev" "$cur" && return; }
    case $prev in
    --workspace | --at | --cwd) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    --ro | --rw | --layer | --layer-ro | --stdin | --policy) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    --level) mapfile -t COMPREPLY < <(compgen -W 'auto ns dir' -- "$cur") ;;
    --net) mapfile -t COMPREPLY < <(compgen -W 'none host' -- "$cur") ;;
    --user) mapfile -t COMPREPLY < <(compgen -W 'user root' -- "$cur") ;;
    --env | --timeout | --tmp-size | --max-output | --memory | --pids | --cpu | --io | --disk | --files | --plan-id | -c) ;;
    --allow | --deny) mapfile -t COMPREPLY < <(compgen -W '@python @node @debian @github' -- "$cur") ;;
    --allow-private | --nameserver) ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W '--workspace --create --at --level --net --allow --deny --allow-private --nameserver --ro --rw --layer --layer-ro --env --cwd --user
            --timeout --tmp-size --stdin --tty --no-tty --max-output
            --memory --pids --cpu --io --disk --files --policy --plan --plan-id --keep-open --json --explain --help -c --' -- "$cur")
        ;;
    esac
}
complete -o filenames -F _carrel carrel
