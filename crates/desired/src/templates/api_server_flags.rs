//! The flags with which a templated API server reads the `EncryptionConfiguration`.
//!
//! Without them the API server starts and stores everything in plain text, although the KMS plugins
//! and the configuration exist. Source: HyperShift's control plane operator, which adds both flags.

use serde_json::Value;

use crate::container_settings::ENCRYPTION_CONFIG_MOUNT;
use crate::problem::{ProblemSeverity, ValidationProblem};

const CONFIG_FLAG: &str = "--encryption-provider-config";
const RELOAD_FLAG: &str = "--encryption-provider-config-automatic-reload";
/// A running API server must not take a new configuration: its KMS plugins belong to the old one.
const RELOAD_VALUE: &str = "false";
/// The effect of a wrong or missing [`CONFIG_FLAG`].
const MIGHT_NOT_ENCRYPT: &str =
    "the API server might not encrypt with the keys of a HostedCluster, and no key is promoted";
/// The effect of a wrong [`RELOAD_FLAG`].
const MIGHT_RELOAD_EARLY: &str = "a running API server could read a configuration whose KMS plugins do not run yet, and no key is promoted";
const SHELLS: [&str; 5] = ["ash", "bash", "dash", "ksh", "sh"];

/// Returns the flags that the container lacks; none if it runs a shell, whose script may ignore them.
pub(crate) fn missing_encryption_flags(container: &Value) -> Vec<String> {
    let words = command_words(container);
    if shell_command(&words).is_some() {
        return Vec::new();
    }
    let is_missing = |(name, _): &(&str, String)| flag_value(&words, name).is_none();
    let missing = required_flags().into_iter().filter(is_missing);
    missing.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Lints a container that does not read lanyard's `EncryptionConfiguration`, although
/// [`missing_encryption_flags`] were added. `path` is the path of the container in the templates.
pub(crate) fn lint_encryption_flags(container: &Value, path: &str) -> Option<ValidationProblem> {
    let words = command_words(container);
    let problem = match shell_command(&words) {
        Some(ShellCommand::File) => Some(script_file_problem()),
        Some(ShellCommand::Inline(script)) => script_problem(script),
        None => argument_problem(&words),
    };
    let FlagProblem { message, effect, hint } = problem?;
    Some(ValidationProblem {
        field: path.to_owned(),
        severity: ProblemSeverity::Lint,
        message: format!("{message}: {effect}"),
        hint: Some(hint),
    })
}

/// What is wrong with the flags of a container.
struct FlagProblem {
    message: String,
    effect: &'static str,
    hint: String,
}

fn script_file_problem() -> FlagProblem {
    FlagProblem {
        message: "the container runs a shell script in a file, which lanyard cannot read"
            .to_owned(),
        effect: MIGHT_NOT_ENCRYPT,
        hint: format!(
            "run `kube-apiserver` without a shell, or write the script with `{}` after `sh -c`",
            required_arguments().join(" ")
        ),
    }
}

fn script_problem(script: &str) -> Option<FlagProblem> {
    let arguments = required_arguments();
    let [config, reload] = &arguments;
    let hint = format!("write `{}` in the script", arguments.join(" "));
    if !script.contains(config.as_str()) {
        let message = format!(
            "the container runs a shell script without `{config}`, and lanyard cannot add a flag to a script"
        );
        return Some(FlagProblem { message, effect: MIGHT_NOT_ENCRYPT, hint });
    }
    let reloads = script.contains(RELOAD_FLAG) && !script.contains(reload.as_str());
    reloads.then(|| FlagProblem {
        message: format!("the container runs a shell script with `{RELOAD_FLAG}`"),
        effect: MIGHT_RELOAD_EARLY,
        hint,
    })
}

fn argument_problem(words: &[&str]) -> Option<FlagProblem> {
    required_flags().into_iter().find_map(|(name, value)| {
        let found = flag_value(words, name).filter(|found| *found != value.as_str())?;
        Some(FlagProblem {
            message: format!("`{name}` is `{found}` and not `{value}`"),
            effect: if name == RELOAD_FLAG { MIGHT_RELOAD_EARLY } else { MIGHT_NOT_ENCRYPT },
            hint: "remove the flag: lanyard adds it".to_owned(),
        })
    })
}

fn required_arguments() -> [String; 2] {
    required_flags().map(|(name, value)| format!("{name}={value}"))
}

fn required_flags() -> [(&'static str, String); 2] {
    [(CONFIG_FLAG, ENCRYPTION_CONFIG_MOUNT.path()), (RELOAD_FLAG, RELOAD_VALUE.to_owned())]
}

/// Returns the words of `command` and `args`.
fn command_words(container: &Value) -> Vec<&str> {
    let list = |field: &str| container.get(field).and_then(Value::as_array);
    let words = ["command", "args"].into_iter().filter_map(list).flatten();
    words.filter_map(Value::as_str).collect()
}

/// What a shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShellCommand<'a> {
    /// The script of a command such as `bash -c SCRIPT`.
    Inline(&'a str),
    /// A file, as in `bash start.sh`.
    File,
}

/// Returns what the first shell of a command runs. A program such as `tini` may start the shell.
fn shell_command<'a>(words: &[&'a str]) -> Option<ShellCommand<'a>> {
    let is_shell = |word: &&str| SHELLS.contains(&word.rsplit('/').next().unwrap_or(word));
    let shell = words.iter().position(is_shell)?;
    let rest = &words[shell + 1..];
    let takes_script = |word: &&str| {
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        letters.is_some_and(|letters| letters.ends_with('c'))
    };
    let script = rest.iter().position(takes_script).and_then(|place| rest.get(place + 1));
    Some(script.map_or(ShellCommand::File, |script| ShellCommand::Inline(script)))
}

/// Returns the value of a flag: `--name=value`, or `--name value`. The last flag counts.
fn flag_value<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let value_at = |(place, word): (usize, &&'a str)| {
        let rest = word.strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if !rest.is_empty() => None,
            // A boolean flag takes no second word.
            None if name == RELOAD_FLAG => Some("true"),
            None => Some(words.get(place + 1).copied().unwrap_or_default()),
        }
    };
    words.iter().enumerate().rev().find_map(value_at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG: &str =
        "--encryption-provider-config=/etc/kubernetes/secret-encryption/config.yaml";
    const RELOAD: &str = "--encryption-provider-config-automatic-reload=false";

    #[test]
    fn missing_flags_are_added_wherever_the_flags_are() {
        let all = vec![CONFIG.to_owned(), RELOAD.to_owned()];
        let spaced =
            ["--encryption-provider-config", "/etc/kubernetes/secret-encryption/config.yaml"];
        let cases = [
            (json!({}), all.clone()),
            (json!({"command": ["hyperkube", "kube-apiserver"], "args": ["-v=5"]}), all.clone()),
            (json!({"command": ["kube-apiserver", "--etcd-prefix=x"]}), all),
            (json!({"args": [CONFIG]}), vec![RELOAD.to_owned()]),
            (json!({"args": spaced}), vec![RELOAD.to_owned()]),
            (json!({"command": ["kube-apiserver", RELOAD]}), vec![CONFIG.to_owned()]),
            (json!({"command": ["kube-apiserver", CONFIG], "args": [RELOAD]}), Vec::new()),
        ];
        for (container, expected) in cases {
            assert_eq!(missing_encryption_flags(&container), expected, "{container}");
            assert_eq!(lint_encryption_flags(&container, "x"), None, "{container}");
        }
    }

    #[test]
    fn other_values_are_kept_and_linted() {
        let other = "--encryption-provider-config=/etc/own.yaml";
        let reload = "--encryption-provider-config-automatic-reload";
        let cases = [
            (json!({"args": [other, RELOAD]}), "is `/etc/own.yaml` and not", MIGHT_NOT_ENCRYPT),
            (
                json!({"args": [CONFIG, other, RELOAD]}),
                "is `/etc/own.yaml` and not",
                MIGHT_NOT_ENCRYPT,
            ),
            (
                json!({"command": ["kube-apiserver", CONFIG, reload]}),
                "is `true` and not `false`",
                MIGHT_RELOAD_EARLY,
            ),
            (
                json!({"args": [CONFIG, format!("{reload}=true")]}),
                "is `true` and not `false`",
                MIGHT_RELOAD_EARLY,
            ),
        ];
        for (container, expected, effect) in cases {
            assert_eq!(missing_encryption_flags(&container), Vec::<String>::new(), "{container}");
            let lint = lint_encryption_flags(&container, "deployments.kube-apiserver").unwrap();
            assert_eq!(lint.severity, ProblemSeverity::Lint);
            assert!(lint.message.contains(expected), "{lint}");
            assert!(lint.message.ends_with(effect), "{lint}");
        }
    }

    #[test]
    fn a_shell_script_must_contain_the_flags() {
        let script = |text: &str| json!({"command": ["/bin/bash", "-ec"], "args": [text]});
        let plain = script("exec kube-apiserver --v=2");
        assert_eq!(missing_encryption_flags(&plain), Vec::<String>::new());
        let lint = lint_encryption_flags(&plain, "x").unwrap();
        assert!(lint.message.starts_with("the container runs a shell script without"), "{lint}");
        assert!(lint.message.ends_with(MIGHT_NOT_ENCRYPT), "{lint}");
        assert!(lint.hint.unwrap().contains(CONFIG));
        for (text, is_linted) in [
            (format!("exec kube-apiserver {CONFIG}"), false),
            (format!("exec kube-apiserver {CONFIG} {RELOAD}"), false),
            (
                format!(
                    "exec kube-apiserver {CONFIG} --encryption-provider-config-automatic-reload"
                ),
                true,
            ),
            ("exec kube-apiserver --encryption-provider-config=/own".to_owned(), true),
        ] {
            assert_eq!(lint_encryption_flags(&script(&text), "x").is_some(), is_linted, "{text}");
        }
        for command in [
            json!(["/bin/bash", "/scripts/kas.sh"]),
            json!(["tini", "--", "sh", "-c", "exec kube-apiserver"]),
        ] {
            let container = json!({"command": command});
            assert_eq!(missing_encryption_flags(&container), Vec::<String>::new(), "{container}");
            let lint = lint_encryption_flags(&container, "x").unwrap();
            assert!(lint.message.contains("runs a shell script"), "{lint}");
        }
        // A program with an argument `-c` is no shell.
        let program = json!({"command": ["kube-apiserver", "-c", "x"]});
        assert_eq!(missing_encryption_flags(&program).len(), 2);
    }
}
