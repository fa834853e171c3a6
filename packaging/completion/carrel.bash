# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bash completion for carrel

# The verbs of the daemon: $1 the verb, $2 the word before, $3 the word.
_carrel_daemon() {
    local words
    case $2 in
    --state | --cwd) mapfile -t COMPREPLY < <(compgen -d -- "$3") ;;
    --policy | --stdin | --config | --socket) mapfile -t COMPREPLY < <(compgen -f -- "$3") ;;
    --user) mapfile -t COMPREPLY < <(compgen -W 'user root' -- "$3") ;;
    --scope) mapfile -t COMPREPLY < <(compgen -W 'user approve admin' -- "$3") ;;
    --env | --timeout | --owner | --label | --link | --from | --signal | --name | --operation | --actor | --head | \
        --listen | --set | -c | -n | -s) ;;
    adopt) mapfile -t COMPREPLY < <(compgen -d -- "$3") ;;
    *)
        case $1 in
        serve) words='--state --listen --socket --config --set --help' ;;
        ws) words='create ls show policy rm undelete sleep backup restore adopt --policy --owner --label --link --deleted --purge --dry-run --json --state --help' ;;
        exec) words='--cwd --env --timeout --user --stdin --tty --background --json --state --help -c --' ;;
        shell) words='--cwd --env --timeout --user --state --help' ;;
        ps) words='--all --json --state --help' ;;
        logs) words='--follow --from --json --state --help' ;;
        kill) words='--signal --json --state --help' ;;
        key) words='create ls revoke --owner --scope --name --json --state --help' ;;
        events) words='--json --state --help' ;;
        audit) words='tail verify --follow --workspace --operation --actor --head --json --state --help' ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$3")
        ;;
    esac
}

_carrel() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} i
    COMPREPLY=()
    # --name=value comes as three words: --name, =, value.
    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run doctor serve ws exec shell ps logs kill key events audit help version --help --version' -- "$cur")
        return
    fi
    case $verb in
    doctor) mapfile -t COMPREPLY < <(compgen -W '--json --help' -- "$cur") && return ;;
    run | exec) ;;
    serve | ws | shell | ps | logs | kill | key | events | audit) _carrel_daemon "$verb" "$prev" "$cur" && return ;;
    *) return ;;
    esac
    # After `--` comes somebody else's command line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            declare -F _command_offset >/dev/null && _command_offset $((i + 1))
            return
        fi
    done
    [[ $verb == run ]] || { _carrel_daemon "$verb" "$prev" "$cur" && return; }
    case $prev in
    --workspace | --at | --cwd) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    --ro | --rw | --stdin | --policy) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    --level) mapfile -t COMPREPLY < <(compgen -W 'auto ns dir' -- "$cur") ;;
    --net) mapfile -t COMPREPLY < <(compgen -W 'none host' -- "$cur") ;;
    --user) mapfile -t COMPREPLY < <(compgen -W 'user root' -- "$cur") ;;
    --env | --timeout | --tmp-size | --max-output | --memory | --pids | --cpu | --io | --disk | --files | -c) ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W '--workspace --create --at --level --net --ro --rw --env --cwd --user
            --timeout --tmp-size --stdin --tty --no-tty --max-output
            --memory --pids --cpu --io --disk --files --policy --json --explain --help -c --' -- "$cur")
        ;;
    esac
}
complete -o filenames -F _carrel carrel
