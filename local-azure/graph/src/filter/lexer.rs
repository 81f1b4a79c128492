//! The tokens of a filter.

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilterToken {
    /// A name, a keyword, or a literal without quotes: letters, digits and `_ . - + $ @`.
    Word(String),
    /// A text in single quotes, without them.
    Text(String),
    /// `(`, `)`, `,`, `:` or `/`.
    Symbol(char),
}

/// A token with the position of its first character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedToken {
    pub(super) token: FilterToken,
    pub(super) position: usize,
}

/// Splits a filter into tokens. Fails with the position of the first invalid character.
pub(super) fn split_tokens(text: &str) -> Result<Vec<PlacedToken>, usize> {
    let mut tokens = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some(&(position, first)) = rest.peek() {
        if first.is_whitespace() {
            rest.next();
            continue;
        }
        let token = match first {
            '\'' => {
                rest.next();
                FilterToken::Text(quoted_text(&mut rest).ok_or(text.len())?)
            }
            '(' | ')' | ',' | ':' | '/' => {
                rest.next();
                FilterToken::Symbol(first)
            }
            _ if is_word_character(first) => FilterToken::Word(word(&mut rest)),
            _ => return Err(position),
        };
        tokens.push(PlacedToken { token, position });
    }
    Ok(tokens)
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// The text up to the closing quote; two quotes stand for one. `None` without a closing quote.
fn quoted_text(rest: &mut Characters<'_>) -> Option<String> {
    let mut text = String::new();
    loop {
        let (_, character) = rest.next()?;
        if character != '\'' {
            text.push(character);
        } else if rest.next_if(|(_, next)| *next == '\'').is_some() {
            text.push('\'');
        } else {
            return Some(text);
        }
    }
}

/// A word. The colons of a time (`2026-11-21T12:00:00Z`) belong to it; the colon of `x:x` does not.
fn word(rest: &mut Characters<'_>) -> String {
    let mut word = String::new();
    while let Some(&(_, character)) = rest.peek() {
        let is_time = word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('T');
        let is_part = is_word_character(character) || (is_time && character == ':');
        if !is_part {
            break;
        }
        word.push(character);
        rest.next();
    }
    word
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.' | '-' | '+' | '$' | '@')
}
