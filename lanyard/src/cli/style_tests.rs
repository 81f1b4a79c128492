//! One style for all commands: output formats, examples, exit codes, and help that fits the terminal.

use clap::{Arg, Command};

use super::{COMMAND_GROUPS, command, command_of_width};
use crate::exit::{EXIT_CODES_HEADING, EXIT_CODES_HELP};
use crate::output::OUTPUT_HEADING;

/// The commands without output formats, and why.
const WITHOUT_OUTPUT_FORMATS: [(&str, &str); 17] = [
    ("render", "prints objects of Kubernetes, for kubectl"),
    ("ccoctl azure create-key-pair", "has the flags of ccoctl"),
    ("node", "runs until SIGTERM"),
    ("node policy suggest", "prints a policy, which is YAML or JSON"),
    ("operator", "runs until SIGTERM; a dry run prints differences, as kubectl diff"),
    ("kms", "runs until SIGTERM"),
    ("canary", "runs until SIGTERM"),
    ("azure login", "prints one message"),
    ("azure snapshot save", "writes a file"),
    ("azure snapshot restore", "prints nothing"),
    ("azure fault add", "prints one message for each rule"),
    ("azure fault remove", "prints one message for each rule"),
    ("azure drill start", "prints one message"),
    ("azure drill stop", "prints one message"),
    ("completions", "prints a script"),
    ("fleet schema", "prints a JSON Schema"),
    ("man", "writes files"),
];

/// Formats that only one command has.
const MORE_FORMATS: [(&str, &str); 1] = [("forecast", "ics")];

/// The commands whose helps list exit codes of their own.
const WITH_OWN_EXIT_CODES: [&str; 2] = ["forecast", "azure run"];

#[test]
fn every_command_has_the_same_output_flag_examples_and_exit_codes() {
    for (name, command) in runnable_commands() {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let is_shown = help.contains("Examples:\n  ") && help.contains(&format!("lanyard {name}"));
        assert!(is_shown, "{name} has no example:\n{help}");
        assert_eq!(help.matches(EXIT_CODES_HEADING).count(), 1, "{name}:\n{help}");
        let has_own_codes = WITH_OWN_EXIT_CODES.contains(&name.as_str());
        assert_ne!(help.ends_with(EXIT_CODES_HELP), has_own_codes, "{name}:\n{help}");
        let reason = WITHOUT_OUTPUT_FORMATS.iter().find(|(other, _)| *other == name);
        let output = command.get_arguments().find(|it| it.get_long() == Some("output"));
        match (output, reason) {
            (Some(output), None) => check_output_formats(&name, output),
            (None, Some(_)) => {}
            (Some(output), Some(_)) => {
                assert_eq!(name, "node policy suggest", "it has output formats");
                check_output_flag(&name, output);
            }
            (None, None) => panic!("{name} has no --output"),
        }
    }
}

fn check_output_flag(name: &str, output: &Arg) {
    assert_eq!(output.get_short(), Some('o'), "{name}");
    assert_eq!(output.get_help_heading(), Some(OUTPUT_HEADING), "{name}");
    let help = output.get_help().map(ToString::to_string);
    assert_eq!(help.as_deref(), Some("The format of the output"), "{name}");
}

fn check_output_formats(name: &str, output: &Arg) {
    check_output_flag(name, output);
    assert_eq!(output.get_default_values(), ["table"], "{name}");
    let formats: Vec<_> =
        output.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
    let more = MORE_FORMATS.iter().filter(|(other, _)| *other == name).map(|(_, format)| *format);
    let expected: Vec<_> = ["table", "json", "yaml"].into_iter().chain(more).collect();
    assert_eq!(formats, expected, "{name}");
}

#[test]
fn exceptions_are_commands() {
    let commands = runnable_commands();
    let formats = WITHOUT_OUTPUT_FORMATS.iter().chain(&MORE_FORMATS).map(|(name, _)| name);
    for name in formats.chain(&WITH_OWN_EXIT_CODES) {
        assert!(commands.iter().any(|(command, _)| command == name), "{name} is not a command");
    }
}

#[test]
fn every_example_is_a_valid_command_line() {
    let mut problems = Vec::new();
    for (name, leaf) in runnable_commands() {
        let help = leaf.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let examples = example_command_lines(&help);
        assert!(!examples.is_empty(), "{name}");
        for example in examples {
            if let Err(error) = command().try_get_matches_from(&example) {
                problems.push(format!("{name}: {}\n{error}", example.join(" ")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The words of each `lanyard` command in the examples of a help.
fn example_command_lines(help: &str) -> Vec<Vec<String>> {
    let examples = help.split_once("Examples:\n").map_or("", |(_, examples)| examples);
    let examples = examples.split("\n\nExit codes:").next().unwrap_or_default();
    let examples = examples.replace("\\\n", " ");
    let commands =
        examples.lines().filter_map(|line| line.find("lanyard ").map(|start| &line[start..]));
    let words = commands.map(|line| {
        let ends = [" | ", " > ", " >> ", " 2> ", ")"];
        let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
        split_words(&line[..end])
    });
    words.collect()
}

/// The words of a command line; a part in single quotes is one word.
fn split_words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        1 => vec![part],
        _ => part.split_whitespace().collect(),
    });
    words.map(str::to_owned).collect()
}

#[test]
fn help_fits_the_terminal() {
    for width in [60, 80, 100, 200] {
        for (name, help) in long_helps(width) {
            for line in help.lines().filter(|line| line.chars().count() > width) {
                assert!(is_unbreakable(line, width), "{name} at {width} columns:\n{line}");
            }
        }
    }
}

#[test]
fn help_lists_every_command_below_its_heading() {
    for width in [60, 100] {
        let help = command_of_width(Some(width)).render_long_help().to_string();
        for (heading, names) in COMMAND_GROUPS {
            let list = help.split_once(&format!("\n{heading}:\n")).unwrap().1;
            let entries = list.lines().take_while(|line| !line.is_empty());
            let entries = entries.filter(|line| !line.starts_with("   "));
            let listed: Vec<_> =
                entries.filter_map(|line| line.split_whitespace().next()).collect();
            assert_eq!(listed, names, "{heading} at {width} columns:\n{help}");
        }
    }
}

/// Whether a line of a help cannot be shorter: the usage, or a word that begins behind the indent.
fn is_unbreakable(line: &str, width: usize) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    line.starts_with("Usage: ")
        || line.starts_with("       lanyard ")
        || words.len() == 1
        // The name and the value of a flag, but not a possible value of an argument.
        || (line.trim_start().starts_with('-') && words.first() != Some(&"-"))
        || words.iter().any(|word| word.chars().count() > width / 2)
}

#[test]
fn example_lines_fit_100_columns() {
    let is_ours = |(name, _): &(String, Command)| !name.starts_with("ccoctl");
    for (name, command) in runnable_commands().into_iter().filter(is_ours) {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            let length = line.chars().count();
            let has_long_word = line.split_whitespace().any(|word| word.chars().count() > 50);
            assert!(length <= 100 || has_long_word, "{name}: {length} columns:\n{line}");
        }
    }
}

/// The commands that can be run, by their names without `lanyard`.
fn runnable_commands() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    visit(&command(), "", &mut |name, command| {
        if !command.is_subcommand_required_set() {
            found.push((name.to_owned(), command.clone()));
        }
    });
    assert!(found.len() > 40, "{}", found.len());
    found
}

/// The long help of every command.
fn long_helps(width: usize) -> Vec<(String, String)> {
    let mut root = command_of_width(Some(width));
    root.build();
    let mut found = Vec::new();
    visit(&root, "", &mut |name, command| {
        let help = command.clone().term_width(width).render_long_help().to_string();
        found.push((name.to_owned(), help));
    });
    found
}

fn visit(command: &Command, name: &str, each: &mut impl FnMut(&str, &Command)) {
    each(name, command);
    let is_shown = |it: &&Command| it.get_name() != "help" && !it.is_hide_set();
    for inner in command.get_subcommands().filter(is_shown) {
        let separator = if name.is_empty() { "" } else { " " };
        visit(inner, &format!("{name}{separator}{}", inner.get_name()), each);
    }
}
