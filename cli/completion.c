/* completion: prints a script for a shell. The script knows nothing of the commands: it calls `trainyard complete` with
 * the words of the line (complete.c). */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* bash divides words at =: they are joined again, and what stands before the last = is removed from the candidates. */
static const char BASH[] = "_trainyard() {\n"
                           "  local candidate word before='' current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
                           "  local -a words=()\n"
                           "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
                           "    if (( ${#words[@]} )) && [[ $word = '=' || ${words[-1]} = *= && $word != -* ]]; then\n"
                           "      words[-1]+=$word\n"
                           "    else\n"
                           "      words+=(\"$word\")\n"
                           "    fi\n"
                           "  done\n"
                           "  case ${words[-1]} in *=*) before=\"${words[-1]%\"${words[-1]##*=}\"}\" ;; esac\n"
                           "  COMPREPLY=()\n"
                           "  while IFS= read -r candidate; do\n"
                           "    if [ \"$candidate\" = :files ]; then\n"
                           "      compopt -o filenames\n"
                           "      mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
                           "      return\n"
                           "    fi\n"
                           "    candidate=\"${candidate%%$'\\t'*}\"\n"
                           "    COMPREPLY+=(\"${candidate#\"$before\"}\")\n"
                           "  done < <(trainyard complete \"${words[@]}\" 2>/dev/null)\n"
                           "  case ${COMPREPLY[0]-} in *. | *=) compopt -o nospace ;; esac\n"
                           "}\n"
                           "complete -F _trainyard trainyard\n";

static const char ZSH[] =
    "#compdef trainyard\n"
    "_trainyard() {\n"
    "  local candidate tab=$'\\t'\n"
    "  local -a open closed\n"
    "  for candidate in \"${(@f)$(trainyard complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
    "    case ${candidate%%$tab*} in\n"
    "      '') ;;\n"
    "      :files) _files; return ;;\n"
    "      *.|*=) open+=(\"$candidate\") ;;\n"
    "      *) closed+=(\"${${candidate//:/\\\\:}/$tab/:}\") ;;\n"
    "    esac\n"
    "  done\n"
    "  (( $#open )) && compadd -S '' -- $open\n"
    "  (( $#closed )) && _describe trainyard closed\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _trainyard ]; then _trainyard \"$@\"; else compdef _trainyard trainyard; fi\n";

static const char FISH[] = "function __trainyard_complete\n"
                           "  set -l words (commandline -opc)[2..-1] (commandline -ct)\n"
                           "  for candidate in (trainyard complete $words 2>/dev/null)\n"
                           "    if test \"$candidate\" = :files\n"
                           "      __fish_complete_path (commandline -ct)\n"
                           "    else\n"
                           "      echo $candidate\n"
                           "    end\n"
                           "  end\n"
                           "end\n"
                           "complete -c trainyard -f -a '(__trainyard_complete)'\n";

struct completion_args {
    char unused;
};

static status_t run(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)c, (void)args;
    const struct { const char *name, *script; } shells[] = { { "bash", BASH }, { "zsh", ZSH }, { "fish", FISH } };
    for (size_t i = 0; i < 3; i++)
        if (strcmp(words[0], shells[i].name) == 0)
            return printf("%s", shells[i].script) < 0 ? err_set(e, ST_INTERNAL, "standard output cannot be written")
                                                      : ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "completion: '%.40s' is not one of: bash, zsh, fish", words[0]);
}

const struct command command_completion = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "Prints a script that completes commands, options, jobs and fields in a shell.",
    .details = "bash: add `source <(trainyard completion bash)` to ~/.bashrc.\n\n"
               "zsh:  add `source <(trainyard completion zsh)` to ~/.zshrc, after compinit.\n\n"
               "fish: trainyard completion fish > ~/.config/fish/completions/trainyard.fish",
    .example = "source <(trainyard completion bash)",
    .args_bytes = sizeof(struct completion_args),
    .min_words = 1,
    .max_words = 1,
    .local = true,
    .run = run,
};
