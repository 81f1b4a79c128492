//! `cargo xtask sample`: random items of the code and random paragraphs of the docs, for a test with a reader
//! who does not know the project.
//!
//! The reader sees the signature and the doc comment of each item and says what the item does. In one commit, a
//! seed always draws the same samples.

use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tidy;

/// Draw random items and paragraphs for a reader who does not know the project
///
/// Example: `cargo xtask sample --seed 1 > questions.md; cargo xtask sample --seed 1 --places > places.txt`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The seed of the draw
    #[arg(long)]
    seed: u64,
    /// How many items to draw; half of them are private
    #[arg(long, default_value_t = 40)]
    items: usize,
    /// How many paragraphs to draw
    #[arg(long, default_value_t = 10)]
    paragraphs: usize,
    /// Print the file and line of each sample instead of its text
    #[arg(long)]
    places: bool,
}

/// An item of the code or a paragraph of the docs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    file: PathBuf,
    /// Counted from 1.
    line: usize,
    text: String,
}

/// The candidates of a draw.
#[derive(Debug, Default)]
struct Candidates {
    public: Vec<Sample>,
    private: Vec<Sample>,
    paragraphs: Vec<Sample>,
}

/// Prints the samples of a seed.
pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<(), TaskError> {
    let mut candidates = Candidates::default();
    for path in tidy::text_files(repository.root())? {
        let text = fs::read_to_string(&path).map_err(|source| TaskError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        candidates.add(path.strip_prefix(repository.root()).unwrap_or(&path), &text);
    }
    let mut random = Rng::with_seed(arguments.seed);
    let private = arguments.items / 2;
    let mut items = draw(&mut random, candidates.public, arguments.items - private);
    items.extend(draw(&mut random, candidates.private, private));
    let items = draw(&mut random, items, arguments.items);
    let paragraphs = draw(&mut random, candidates.paragraphs, arguments.paragraphs);
    process::print_line(&format!("seed {}", arguments.seed));
    for (number, sample) in items.iter().chain(&paragraphs).enumerate() {
        let (number, place) = (number + 1, sample.file.display());
        process::print_line(&if arguments.places {
            format!("{number} {place}:{}", sample.line)
        } else if number <= items.len() {
            format!("\n## {number}\n\n```rust\n{}\n```", sample.text)
        } else {
            format!("\n## {number}\n\n{}", sample.text)
        });
    }
    Ok(())
}

impl Candidates {
    fn add(&mut self, file: &Path, text: &str) {
        match file.extension().and_then(|it| it.to_str()) {
            Some("rs") if !tidy::is_test_file(file) => {
                for (is_public, sample) in items(file, text) {
                    if is_public { self.public.push(sample) } else { self.private.push(sample) }
                }
            }
            Some("md") => self.paragraphs.extend(paragraphs(file, text)),
            _ => {}
        }
    }
}

/// The items before the inline test module, each with whether it is public.
fn items(file: &Path, text: &str) -> Vec<(bool, Sample)> {
    let count = tidy::lines_without_tests(file, text);
    let lines: Vec<&str> = text.lines().take(count).collect();
    let mut items = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut implementation = "";
    for (index, line) in lines.iter().enumerate() {
        if !line.is_empty() && !line.starts_with([' ', '/', '#']) {
            implementation =
                line.strip_suffix(" {").filter(|it| it.starts_with("impl")).unwrap_or("");
        }
        let line = line.trim();
        if line.starts_with("///") {
            comment.push(line);
        } else if let Some(kind) = item_kind(line) {
            let mut text = format!("// {}", file.display());
            if !implementation.is_empty() {
                text.extend([", ", implementation]);
            }
            for line in comment.iter().copied().chain([definition(&lines[index..], kind).as_str()])
            {
                text.extend(["\n", line]);
            }
            let sample = Sample { file: file.to_path_buf(), line: index + 1, text };
            items.push((line.starts_with("pub "), sample));
        }
        if !line.starts_with("///") && !line.starts_with("#[") {
            comment.clear();
        }
    }
    items
}

/// How much of an item the reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    /// The fields or variants as well.
    Type,
    /// Only the signature.
    Function,
}

fn item_kind(line: &str) -> Option<ItemKind> {
    let visible = line.strip_prefix("pub").map_or(line, |rest| {
        rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest)
    });
    let mut words = visible.split_whitespace();
    let keyword = words.find(|word| !["const", "async"].contains(word))?;
    match keyword {
        "struct" | "enum" => Some(ItemKind::Type),
        "fn" | "trait" | "type" => Some(ItemKind::Function),
        _ => None,
    }
}

/// The lines of a definition, from its first one: of a type at most [`MAX_DEFINITION_LINES`], of a function those
/// before its body.
fn definition(lines: &[&str], kind: ItemKind) -> String {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let ends = |line: &&str| {
        let ends_here = line.len() - line.trim_start().len() == indent;
        match kind {
            ItemKind::Function => line.ends_with(['{', ';', '}']),
            ItemKind::Type => ends_here && line.ends_with([';', '}']),
        }
    };
    let end =
        lines.iter().position(ends).map_or(lines.len(), |end| end + 1).min(MAX_DEFINITION_LINES);
    let shown = lines[..end].iter().map(|line| line.get(indent..).unwrap_or_default());
    shown.collect::<Vec<_>>().join("\n").trim_end_matches([' ', '{']).to_owned()
}

/// Paragraphs of prose: no headings, tables, lists and code.
fn paragraphs(file: &Path, text: &str) -> Vec<Sample> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut paragraph: Vec<&str> = Vec::new();
    for (index, line) in text.lines().chain([""]).enumerate() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if !is_code && !line.trim().is_empty() && !line.starts_with("```") {
            paragraph.push(line);
            continue;
        }
        let words = paragraph.iter().flat_map(|line| line.split_whitespace()).count();
        let is_prose = paragraph
            .first()
            .is_some_and(|line| !line.starts_with(['#', '|', '-', '*', '1', '<', '>']));
        if is_prose && words >= MIN_PARAGRAPH_WORDS {
            let (line, text) = (index + 1 - paragraph.len(), paragraph.join("\n"));
            found.push(Sample { file: file.to_path_buf(), line, text });
        }
        paragraph.clear();
    }
    found
}

/// Draws `count` different samples.
fn draw(random: &mut Rng, mut from: Vec<Sample>, count: usize) -> Vec<Sample> {
    random.shuffle(&mut from);
    from.truncate(count);
    from
}

/// The maximum length of a printed definition, in lines.
const MAX_DEFINITION_LINES: usize = 16;
/// The minimum length of a paragraph, in words.
const MIN_PARAGRAPH_WORDS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! File.\n\n/// A point.\n#[derive(Debug)]\npub struct Point {\n    x: u8,\n}\n\nimpl Point {\n    /// Moves it.\n    pub(crate) async fn shift(\n        &self,\n    ) -> Self {\n        loop {}\n    }\n}\n\nconst fn plain() {}\n\n#[cfg(test)]\nmod tests {\n    fn hidden() {}\n}\n";

    #[test]
    fn items_have_their_comment_and_signature_and_tests_are_left_out() {
        let found = items(Path::new("src/point.rs"), CODE);
        let texts: Vec<_> =
            found.iter().map(|(public, it)| (*public, it.line, &*it.text)).collect();
        assert_eq!(
            texts,
            [
                (true, 5, "// src/point.rs\n/// A point.\npub struct Point {\n    x: u8,\n}"),
                (
                    false,
                    11,
                    "// src/point.rs, impl Point\n/// Moves it.\npub(crate) async fn shift(\n    &self,\n) -> Self"
                ),
                (false, 18, "// src/point.rs\nconst fn plain() {}"),
            ]
        );
    }

    #[test]
    fn paragraphs_are_prose_of_some_length() {
        let long = "word ".repeat(MIN_PARAGRAPH_WORDS);
        let page = format!(
            "# Title\n\n{long}\n{long}\n\nshort\n\n| {long} |\n\n```text\n{long}\n```\n\n{long}"
        );
        let found = paragraphs(Path::new("page.md"), &page);
        assert_eq!(found.iter().map(|it| it.line).collect::<Vec<_>>(), [3, 14]);
    }

    #[test]
    fn a_seed_draws_the_same_samples_each_once() {
        let sample = |line| Sample { file: PathBuf::new(), line, text: String::new() };
        let all: Vec<_> = (0..100).map(sample).collect();
        let lines = |seed| {
            let drawn = draw(&mut Rng::with_seed(seed), all.clone(), 40);
            drawn.iter().map(|it| it.line).collect::<Vec<_>>()
        };
        assert_eq!(lines(7), lines(7));
        assert_ne!(lines(7), lines(8));
        let mut sorted = lines(7);
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 40);
    }
}
