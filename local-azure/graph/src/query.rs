//! Query options of `OData`: `$select`, `$filter`, `$top`, `$skiptoken`, `$count`, `$orderby`, `$search`, `$expand`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::access::GraphCall;
use super::entity::GraphEntity;
use super::error::GraphError;
use super::filter::{FilterTarget, GraphFilter};

/// The default and the largest size of a page.
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 999;

/// The query options of a list.
#[derive(Debug, Clone)]
pub(super) struct ListQuery {
    pub(super) select: Vec<String>,
    pub(super) filter: Option<GraphFilter>,
    pub(super) search: Option<NameSearch>,
    pub(super) order: Option<ListOrder>,
    pub(super) expand: Vec<String>,
    pub(super) page_size: usize,
    /// Where the page starts.
    pub(super) after: Option<PagePosition>,
    /// Whether the request has `ConsistencyLevel: eventual` and `$count=true`: the reply contains the number of
    /// all matches.
    pub(super) is_advanced: bool,
}

/// `$orderby` with one property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListOrder {
    pub(super) property: String,
    pub(super) is_descending: bool,
}

/// `$search="property:text"` with a text property: objects with a word that starts with the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameSearch {
    pub(super) property: String,
    text: String,
}

/// The position of the last item of a page: the value that orders the list, and the id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PagePosition {
    pub(super) order_value: String,
    pub(super) id: String,
}

impl ListQuery {
    /// Parses the query of a request for resources of one type. Unknown options are rejected: ignoring one would
    /// return other objects than the client wants.
    pub(super) fn parse<E: GraphEntity>(call: &GraphCall<'_, '_>) -> Result<Self, GraphError> {
        let is_advanced = parse_count(call)? && is_eventual(call);
        Self::parse_with(call, E::TARGET, is_advanced)
    }

    /// Like [`Self::parse`], for an advanced query.
    pub(super) fn parse_advanced<E: GraphEntity>(
        call: &GraphCall<'_, '_>,
    ) -> Result<Self, GraphError> {
        Self::parse_with(call, E::TARGET, true)
    }

    fn parse_with(
        call: &GraphCall<'_, '_>,
        target: FilterTarget,
        is_advanced: bool,
    ) -> Result<Self, GraphError> {
        let request = call.context.request;
        for (name, _) in request.query.iter().filter(|(name, _)| name.starts_with('$')) {
            let known = [
                "$select",
                "$filter",
                "$top",
                "$skiptoken",
                "$count",
                "$orderby",
                "$search",
                "$expand",
                "$format",
            ];
            if !known.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                return Err(GraphError::malformed(format!(
                    "The query parameter '{name}' is not supported but starts with '$'."
                )));
            }
        }
        let option =
            |name: &str| request.query(name).map(str::trim).filter(|text| !text.is_empty());
        let search =
            option("$search").map(|text| NameSearch::parse(text, is_eventual(call))).transpose()?;
        let filter = request.query("$filter");
        Ok(Self {
            select: names(option("$select")),
            filter: filter.map(|text| GraphFilter::parse(text, target, is_advanced)).transpose()?,
            search,
            order: option("$orderby").map(ListOrder::parse).transpose()?,
            expand: names(option("$expand")),
            page_size: option("$top").map(parse_page_size).transpose()?.unwrap_or(DEFAULT_PAGE),
            after: option("$skiptoken").map(PagePosition::parse).transpose()?,
            is_advanced,
        })
    }

    /// The text that a property has in every match, if the filter determines it.
    pub(super) fn required_text(&self, property: &str) -> Option<&str> {
        self.filter.as_ref()?.required_text(property)
    }
}

/// Whether the request accepts results that do not contain the latest changes, as advanced queries need.
pub(super) fn is_eventual(call: &GraphCall<'_, '_>) -> bool {
    call.has_header_value("consistencylevel", "eventual")
}

/// The value of `$count`; `false` if it is absent.
fn parse_count(call: &GraphCall<'_, '_>) -> Result<bool, GraphError> {
    let Some(text) = call.context.request.query("$count") else { return Ok(false) };
    text.trim().parse().map_err(|_no_boolean: std::str::ParseBoolError| {
        GraphError::malformed(format!("Invalid value '{text}' for $count query option found."))
    })
}

/// The names of `$select` and `$expand`; nested options (`owners($select=id)`) are dropped.
pub(super) fn names(text: Option<&str>) -> Vec<String> {
    let mut names = Vec::new();
    let (mut name, mut depth) = (String::new(), 0_u32);
    for character in text.unwrap_or_default().chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => names.push(std::mem::take(&mut name)),
            _ if depth == 0 => name.push(character),
            _ => {}
        }
    }
    names.push(name);
    names.into_iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn parse_page_size(text: &str) -> Result<usize, GraphError> {
    match text.parse() {
        Ok(size @ 1..=MAX_PAGE) => Ok(size),
        Ok(0) | Err(_) => Err(GraphError::malformed(format!(
            "Invalid value '{text}' for $top query option found. The $top query option requires a non-negative integer value."
        ))),
        Ok(_) => Err(GraphError::bad_request(format!(
            "Invalid page size specified: '{text}'. Must be between 1 and {MAX_PAGE} inclusive."
        ))),
    }
}

impl ListOrder {
    fn parse(text: &str) -> Result<Self, GraphError> {
        let (property, direction) = text.split_once(' ').unwrap_or((text, "asc"));
        let is_descending = match direction.trim().to_ascii_lowercase().as_str() {
            "asc" => false,
            "desc" => true,
            _ => {
                return Err(GraphError::malformed(format!(
                    "Syntax error at position {} in '{text}'.",
                    property.len() + 1
                )));
            }
        };
        Ok(Self { property: property.to_owned(), is_descending })
    }
}

impl NameSearch {
    fn parse(text: &str, is_eventual: bool) -> Result<Self, GraphError> {
        if !is_eventual {
            return Err(GraphError::unsupported_query(
                "Request with $search query parameter only works through MSGraph with a special request header: 'ConsistencyLevel: eventual'",
            ));
        }
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let parts =
            inner.filter(|inner| !inner.contains('"')).and_then(|inner| inner.split_once(':'));
        match parts {
            Some((property, text)) if !text.trim().is_empty() => {
                Ok(Self { property: property.trim().to_owned(), text: text.trim().to_lowercase() })
            }
            _ => Err(GraphError::unsupported_query(format!(
                "The emulator supports one clause of the form \"property:text\" in $search, not '{text}'."
            ))),
        }
    }

    /// Whether a word of a text starts with the searched one.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        text.starts_with(&self.text)
            || text.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with(&self.text))
    }
}

impl PagePosition {
    fn parse(token: &str) -> Result<Self, GraphError> {
        let invalid =
            || GraphError::malformed("The value of the query option $skiptoken is invalid.");
        let bytes = URL_SAFE_NO_PAD.decode(token).ok().ok_or_else(invalid)?;
        let text = String::from_utf8(bytes).ok().ok_or_else(invalid)?;
        let (id, order_value) = text.split_once(' ').ok_or_else(invalid)?;
        Ok(Self { order_value: order_value.to_owned(), id: id.to_owned() })
    }

    /// The value of `$skiptoken`.
    pub(super) fn token(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{} {}", self.id, self.order_value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_outside_of_parentheses() {
        for (text, expected) in [
            ("", vec![]),
            ("id", vec!["id"]),
            ("id, displayName ,appId", vec!["id", "displayName", "appId"]),
            ("owners($select=id,displayName),members", vec!["owners", "members"]),
        ] {
            assert_eq!(names(Some(text)), expected, "{text}");
        }
        assert!(names(None).is_empty());
    }

    #[test]
    fn page_position_survives_its_token() {
        let position = PagePosition { order_value: "a b: ü".to_owned(), id: "x-1".to_owned() };
        assert_eq!(PagePosition::parse(&position.token()), Ok(position));
        for token in ["", "%", "YQ"] {
            assert!(PagePosition::parse(token).is_err(), "{token}");
        }
    }

    #[test]
    fn search_matches_beginnings_of_words() {
        let search = NameSearch::parse("\"displayName:Key\"", true).unwrap();
        for (text, expected) in [("Azure Key Vault", true), ("keys", true), ("monkey", false)] {
            assert_eq!(search.matches(text), expected, "{text}");
        }
        for text in ["displayName:x", "\"x\"", "\"displayName:\"", "\"a:b\" AND \"c:d\""] {
            assert!(NameSearch::parse(text, true).is_err(), "{text}");
        }
        assert!(NameSearch::parse("\"displayName:x\"", false).is_err());
    }
}
