# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bash completion for carrel

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
        mapfile -t COMPREPLY < <(compgen -W 'run doctor help version --help --version' -- "$cur")
        return
    fi
    case $verb in
    doctor) mapfile -t COMPREPLY < <(compgen -W '--json --help' -- "$cur") && return ;;
    run) ;;
    *) return ;;
    esac
    # After `--` comes somebody else's command line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            declare -F _command_offset >/dev/null && _command_offset $((i + 1))
            return
        fi
    done
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
