//! Lines that set and unset environment variables, in the syntax of a shell or of a file.

/// The syntax of the lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ShellSyntax {
    /// `export` and `unset`, also for sh and zsh
    #[default]
    Bash,
    /// `set`, for fish
    Fish,
    /// `$Env:`, for PowerShell
    Powershell,
    /// `NAME=value`, for `docker run --env-file` and libraries; without the variables to unset
    Dotenv,
}

impl ShellSyntax {
    /// The lines that set and unset variables.
    pub(crate) fn lines<'a>(
        self,
        set: impl Iterator<Item = (&'static str, &'a str)>,
        unset: &[&str],
    ) -> String {
        let mut lines: Vec<_> = set.map(|(name, value)| self.set_line(name, value)).collect();
        if !unset.is_empty() {
            lines.extend(self.unset_line(unset));
        }
        lines.concat()
    }

    fn set_line(self, name: &str, value: &str) -> String {
        match self {
            Self::Bash => format!("export {name}={}\n", quote_for_bash(value)),
            Self::Fish => {
                let value = value.replace('\\', r"\\").replace('\'', r"\'");
                format!("set -gx {name} '{value}'\n")
            }
            Self::Powershell => format!("$Env:{name} = '{}'\n", value.replace('\'', "''")),
            // Docker takes the text after the equals sign literally, including quotes.
            Self::Dotenv => format!("{name}={value}\n"),
        }
    }

    fn unset_line(self, names: &[&str]) -> Option<String> {
        match self {
            Self::Bash => Some(format!("unset {}\n", names.join(" "))),
            Self::Fish => Some(format!("set -e {}\n", names.join(" "))),
            Self::Powershell => {
                let names: Vec<_> = names.iter().map(|name| format!("Env:{name}")).collect();
                let names = names.join(", ");
                Some(format!("Remove-Item -ErrorAction SilentlyContinue {names}\n"))
            }
            Self::Dotenv => None,
        }
    }
}

/// Quotes a word for bash and other POSIX shells.
pub fn quote_for_bash(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(syntax: ShellSyntax) -> String {
        syntax.lines([("A", r"it's \here")].into_iter(), &["B", "C"])
    }

    #[test]
    fn values_are_quoted_in_every_syntax() {
        assert_eq!(lines(ShellSyntax::Bash), "export A='it'\\''s \\here'\nunset B C\n");
        assert_eq!(lines(ShellSyntax::Fish), "set -gx A 'it\\'s \\\\here'\nset -e B C\n");
        assert_eq!(
            lines(ShellSyntax::Powershell),
            "$Env:A = 'it''s \\here'\nRemove-Item -ErrorAction SilentlyContinue Env:B, Env:C\n"
        );
        assert_eq!(lines(ShellSyntax::Dotenv), "A=it's \\here\n");
    }
}
