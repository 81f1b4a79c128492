//! The list of commands in the help, with a heading above each group.
//!
//! clap has headings for arguments, but not for subcommands.

use clap::Command;
use clap::builder::StyledStr;

use super::MAX_HELP_WIDTH;

/// A heading of the list, and the names of the commands below it.
pub(super) type CommandGroup = (&'static str, &'static [&'static str]);

/// Lists the commands of `program` in `groups` in its help. A group without a command in this build is left out.
/// `width` is the number of columns; `None` is the width of the terminal.
pub(super) fn group_commands(
    program: Command,
    groups: &[CommandGroup],
    width: Option<usize>,
) -> Command {
    let mut list = Command::new("list")
        .help_template("{subcommands}")
        .max_term_width(MAX_HELP_WIDTH)
        .styles(program.get_styles().clone());
    if let Some(width) = width {
        list = list.term_width(width);
    }
    for name in groups.iter().flat_map(|(_, names)| *names) {
        let about = program.find_subcommand(name).and_then(Command::get_about);
        list = list.subcommands(about.map(|about| Command::new(*name).about(about.clone())));
    }
    // Rendering adds the command `help` at the end.
    let rendered = list.render_help().ansi().to_string();
    let mut entries = split_entries(&rendered).into_iter();
    let header = program.get_styles().get_header();
    let sections = groups.iter().filter_map(|(heading, names)| {
        let count = names.iter().filter(|name| list.find_subcommand(name).is_some()).count();
        let listed: Vec<_> = entries.by_ref().take(count).collect();
        (count > 0).then(|| format!("{header}{heading}:{header:#}\n{}\n\n", listed.join("\n")))
    });
    let sections: String = sections.collect();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         {sections}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    program.help_template(StyledStr::from(template))
}

/// Returns the entries of a rendered list. An entry has an indent of two columns, and its further lines a deeper one.
fn split_entries(list: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in list.lines() {
        match entries.last_mut().filter(|_| line.starts_with("   ")) {
            Some(entry) => {
                entry.push('\n');
                entry.push_str(line);
            }
            None => entries.push(line.to_owned()),
        }
    }
    entries
}
