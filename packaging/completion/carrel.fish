# SPDX-License-Identifier: Apache-2.0
# fish completion for carrel

function __carrel_verb -a verb
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $verb; and not contains -- -- $words
end
function __carrel_no_verb
    test (count (commandline -opc)) -eq 1
end

complete -c carrel -f
complete -c carrel -n __carrel_no_verb -a run -d 'run one command in a sandbox'
complete -c carrel -n __carrel_no_verb -a doctor -d 'say what this host offers'
complete -c carrel -n __carrel_no_verb -a help -d 'print a short usage'
complete -c carrel -n __carrel_no_verb -a version -d 'print the version'
complete -c carrel -n __carrel_no_verb -l help -d 'print a short usage'
complete -c carrel -n __carrel_no_verb -l version -d 'print the version'
complete -c carrel -n '__carrel_verb doctor' -l json -d 'print one JSON object'
complete -c carrel -n '__carrel_verb doctor' -l help -d 'print a short usage'
complete -c carrel -n '__carrel_verb run' -l workspace -x -a '(__fish_complete_directories)' -d 'directory that becomes /'
complete -c carrel -n '__carrel_verb run' -l create -d 'make the workspace if it is not there'
complete -c carrel -n '__carrel_verb run' -l at -x -d 'where the current directory appears'
complete -c carrel -n '__carrel_verb run' -l level -x -a 'auto ns dir' -d 'isolation level'
complete -c carrel -n '__carrel_verb run' -l net -x -a 'none host' -d 'network'
complete -c carrel -n '__carrel_verb run' -l ro -r -F -d 'show read-only'
complete -c carrel -n '__carrel_verb run' -l rw -r -F -d 'show writable'
complete -c carrel -n '__carrel_verb run' -l env -x -d 'add to the environment'
complete -c carrel -n '__carrel_verb run' -l cwd -x -d 'where the command starts'
complete -c carrel -n '__carrel_verb run' -l user -x -a 'user root' -d 'who the command is inside'
complete -c carrel -n '__carrel_verb run' -l timeout -x -d 'deadline of the whole tree'
complete -c carrel -n '__carrel_verb run' -l tmp-size -x -d 'size of /tmp'
complete -c carrel -n '__carrel_verb run' -l stdin -r -F -d 'standard input from a file'
complete -c carrel -n '__carrel_verb run' -l tty -d 'give the command a terminal'
complete -c carrel -n '__carrel_verb run' -l no-tty -d 'give it none'
complete -c carrel -n '__carrel_verb run' -l max-output -x -d 'bound of the output'
complete -c carrel -n '__carrel_verb run' -l memory -x -d 'memory of the whole tree'
complete -c carrel -n '__carrel_verb run' -l pids -x -d 'processes and threads at a time'
complete -c carrel -n '__carrel_verb run' -l cpu -x -d 'processors'
complete -c carrel -n '__carrel_verb run' -l io -x -d 'bytes a second'
complete -c carrel -n '__carrel_verb run' -l disk -x -d 'bytes it may add'
complete -c carrel -n '__carrel_verb run' -l files -x -d 'files it may add'
complete -c carrel -n '__carrel_verb run' -l policy -r -F -d 'policy file'
complete -c carrel -n '__carrel_verb run' -l json -d 'print one JSON object'
complete -c carrel -n '__carrel_verb run' -l explain -d 'print the setup and run nothing'
complete -c carrel -n '__carrel_verb run' -l help -d 'print a short usage'
complete -c carrel -n '__carrel_verb run' -s c -x -d 'run a shell line'
