//! The rules for words and identifiers that a program can check. The other rules are in CONTRIBUTING.md.

use std::collections::HashSet;
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};

/// The rule file of the prose linter. Its `tokens` are the words that no file may contain.
const WORD_RULE: &str = include_str!("../../../.vale/styles/Lanyard/Words.yml");

/// Former names that say nothing without their module, as identifiers in both cases: `Seen` and `seen`.
/// CONTRIBUTING.md says how to choose a name.
const REPLACED_TERMS: [&str; 69] = [
    "again",
    "asker",
    "azure_end",
    "beside",
    "board",
    "bout",
    "class_wishes",
    "contest",
    "cooling_error",
    "demand",
    "desk",
    "distrust",
    "door",
    "drill",
    "fading",
    "fence",
    "filling",
    "flight",
    "fuse",
    "ground",
    "guests",
    "heard",
    "house",
    "judgement",
    "judges",
    "kept",
    "landing",
    "landscape",
    "lane",
    "lanes",
    "leaving",
    "look",
    "looked",
    "made",
    "manners",
    "news",
    "nook",
    "occupant",
    "parting",
    "patience",
    "refusal",
    "remarks",
    "road",
    "roadbed",
    "rooms",
    "roster",
    "rotating_volume",
    "satellites",
    "seen",
    "shelf",
    "sight",
    "sightings",
    "site",
    "standing",
    "strangers",
    "supply",
    "survey",
    "tell",
    "telling",
    "tenure",
    "told",
    "trouble",
    "turn",
    "volume_report",
    "volume_state",
    "walk",
    "way",
    "wish",
    "wished",
];

/// Terms of the field in lower case that are no names of types.
const REPLACED_TYPES: [&str; 3] = ["Contents", "Pages", "Step"];

/// A place in a file that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LanguageFinding {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) problem: String,
}

/// Finds the words that no comment, message or page may contain.
pub(super) fn find_words(text: &str, is_markdown: bool) -> Vec<LanguageFinding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = if is_markdown { without_code_spans(line) } else { line.to_owned() };
        let line = line.to_lowercase();
        for word in FORBIDDEN_WORDS.iter() {
            let is_found = line.match_indices(*word).any(|(start, _)| {
                let is_letter = |it: char| it.is_alphanumeric();
                !line[..start].ends_with(is_letter)
                    && !line[start + word.len()..].starts_with(is_letter)
            });
            if is_found {
                let problem = format!("`{word}` names no actor; say who or what it is");
                findings.push(LanguageFinding { line: index + 1, problem });
            }
        }
    }
    findings
}

/// The tokens of [`WORD_RULE`].
static FORBIDDEN_WORDS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| WORD_RULE.lines().filter_map(|line| line.strip_prefix("  - ")).collect());

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Finds identifiers of Rust that are replaced terms. Code that cannot be parsed has none; the compiler rejects it.
pub(super) fn find_identifiers(code: &str) -> Vec<LanguageFinding> {
    let mut findings = Vec::new();
    if let Ok(tokens) = code.parse() {
        add_identifiers(tokens, &mut findings);
    }
    findings
}

fn add_identifiers(tokens: TokenStream, findings: &mut Vec<LanguageFinding>) {
    for token in tokens {
        match token {
            TokenTree::Ident(identifier) => {
                let name = identifier.to_string();
                if is_replaced_term(&name) {
                    let line = identifier.span().start().line;
                    let problem =
                        format!("`{name}` says nothing without its module; use the field's term");
                    findings.push(LanguageFinding { line, problem });
                }
            }
            TokenTree::Group(group) => add_identifiers(group.stream(), findings),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn is_replaced_term(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let snake = REPLACED_TERMS.iter().chain(&REPLACED_TYPES).map(|term| (*term).to_owned());
        snake.chain(REPLACED_TERMS.iter().map(|term| to_camel_case(term))).collect()
    });
    NAMES.contains(name)
}

/// The name of a type for a term in snake case.
fn to_camel_case(term: &str) -> String {
    let parts = term.split('_').flat_map(|part| {
        let (first, rest) = part.split_at(1);
        [first.to_uppercase(), rest.to_owned()]
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[LanguageFinding]) -> Vec<usize> {
        findings.iter().map(|it| it.line).collect()
    }

    #[test]
    fn words_of_the_rule_file_are_found_as_whole_words() {
        assert_eq!(FORBIDDEN_WORDS.len(), 8);
        for word in FORBIDDEN_WORDS.iter() {
            let text = format!("one line\n{} else, {word}.\n", word.to_uppercase());
            assert_eq!(lines(&find_words(&text, false)), [2], "{word}");
            assert!(find_words(&format!("x{word}y `z`"), false).is_empty(), "{word}");
            assert!(find_words(&format!("not `{word}` here"), true).is_empty(), "{word}");
        }
    }

    #[test]
    fn replaced_terms_are_found_as_identifiers_only() {
        for term in REPLACED_TERMS.iter().chain(&REPLACED_TYPES) {
            let code = format!("// {term}\nfn f() {{ let {term} = \"{term}\"; }}");
            assert_eq!(lines(&find_identifiers(&code)), [2], "{term}");
            assert!(find_identifiers(&format!("fn f_{term}() {{}}")).is_empty(), "{term}");
        }
        assert_eq!(lines(&find_identifiers("\nstruct AzureEnd;\nenum E { Seen }")), [2, 3]);
        assert!(find_identifiers("fn step(mounted: u8, contents: u8) {}").is_empty());
    }
}
