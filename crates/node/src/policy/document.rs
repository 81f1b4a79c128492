//! The policy file: read strictly, every problem at once, and written.
//!
//! A field that is not known is a problem. A policy with a misspelt word means something else than
//! its author thinks, and is better refused than obeyed.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::policy::NodePolicy;
use crate::policy::error::{PolicyProblem, PolicyProblems};
use crate::policy::pattern::{IdentityPattern, NameKind, NamePattern, ObjectPattern};
use crate::policy::rule::{PolicyRule, VaultGrant};

/// `apiVersion` of a policy.
const API_VERSION: &str = "lanyard.dev/v1alpha1";
/// `kind` of a policy.
const KIND: &str = "NodePolicy";
/// The longest name of a rule.
const MAX_RULE_NAME: usize = 63;

impl NodePolicy {
    /// Reads a policy in YAML or JSON.
    ///
    /// # Errors
    /// Every problem of every field, with its path.
    pub fn parse(text: &str) -> Result<Self, PolicyProblems> {
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let reason = format!("this is not YAML: {error}");
            PolicyProblems(vec![PolicyProblem { field: String::new(), reason }])
        })?;
        let mut problems = Vec::new();
        let rules = PolicyDocumentParser { problems: &mut problems }.parse_document(&value);
        if problems.is_empty() { Ok(Self { rules }) } else { Err(PolicyProblems(problems)) }
    }

    /// The policy as a document that [`NodePolicy::parse`] reads.
    pub fn to_document(&self) -> impl Serialize + use<> {
        PolicyDocument {
            api_version: API_VERSION,
            kind: KIND,
            rules: self.rules.iter().map(PolicyRuleDocument::of).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyDocument {
    api_version: &'static str,
    kind: &'static str,
    rules: Vec<PolicyRuleDocument>,
}

#[derive(Serialize)]
struct PolicyRuleDocument {
    name: String,
    namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identities: Option<Vec<String>>,
    vaults: Vec<VaultGrantDocument>,
}

#[derive(Serialize)]
struct VaultGrantDocument {
    name: String,
    objects: Vec<String>,
}

impl PolicyRuleDocument {
    fn of(rule: &PolicyRule) -> Self {
        Self {
            name: rule.name.clone(),
            namespaces: to_strings(&rule.namespaces),
            classes: rule.classes.as_deref().map(to_strings),
            identities: rule.identities.as_deref().map(to_strings),
            vaults: rule.vaults.iter().map(VaultGrantDocument::of).collect(),
        }
    }
}

impl VaultGrantDocument {
    fn of(grant: &VaultGrant) -> Self {
        Self { name: grant.name.to_string(), objects: to_strings(&grant.objects) }
    }
}

fn to_strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// Walks the document; what cannot be read becomes a problem and is passed over.
struct PolicyDocumentParser<'a> {
    problems: &'a mut Vec<PolicyProblem>,
}

impl PolicyDocumentParser<'_> {
    fn parse_document(&mut self, value: &Value) -> Vec<PolicyRule> {
        let Some(fields) = self.expect_mapping("", value, &["apiVersion", "kind", "rules"]) else {
            return Vec::new();
        };
        self.expect_constant(fields, "apiVersion", API_VERSION);
        self.expect_constant(fields, "kind", KIND);
        let items = self.expect_list("rules", fields.get("rules"), true).unwrap_or_default();
        let mut names = BTreeSet::new();
        let mut rules = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("rules[{index}]");
            if let Some(rule) = self.parse_rule(&place, item) {
                if !names.insert(rule.name.clone()) {
                    let reason = format!("another rule is called `{}` already", rule.name);
                    self.add_problem(format!("{place}.name"), reason);
                }
                rules.push(rule);
            }
        }
        rules
    }

    fn parse_rule(&mut self, place: &str, value: &Value) -> Option<PolicyRule> {
        let known = ["name", "namespaces", "classes", "identities", "vaults"];
        let fields = self.expect_mapping(place, value, &known)?;
        let at = |field: &str| format!("{place}.{field}");
        let name = self.parse_rule_name(at("name"), fields.get("name"));
        let namespaces =
            self.parse_patterns(&at("namespaces"), fields.get("namespaces"), NameKind::Namespace);
        let classes = fields.get("classes").map(|value| {
            self.parse_patterns(&at("classes"), Some(value), NameKind::Class).unwrap_or_default()
        });
        let identities = fields.get("identities").map(|value| {
            self.parse_items(&at("identities"), Some(value), IdentityPattern::from_str)
                .unwrap_or_default()
        });
        let vaults = self.parse_vaults(&at("vaults"), fields.get("vaults"));
        Some(PolicyRule {
            name: name?,
            namespaces: namespaces?,
            classes,
            identities,
            vaults: vaults?,
        })
    }

    fn parse_vaults(&mut self, place: &str, value: Option<&Value>) -> Option<Vec<VaultGrant>> {
        let items = self.expect_list(place, value, false)?;
        let mut grants = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}[{index}]");
            let Some(fields) = self.expect_mapping(&place, item, &["name", "objects"]) else {
                continue;
            };
            let name = self.expect_text(format!("{place}.name"), fields.get("name"));
            let name = name.and_then(|text| {
                self.record_error(
                    format!("{place}.name"),
                    NamePattern::parse(text, NameKind::Vault),
                )
            });
            let objects = self.parse_items(
                &format!("{place}.objects"),
                fields.get("objects"),
                str::parse::<ObjectPattern>,
            );
            if let (Some(name), Some(objects)) = (name, objects) {
                grants.push(VaultGrant { name, objects });
            }
        }
        Some(grants)
    }

    fn parse_patterns(
        &mut self,
        place: &str,
        value: Option<&Value>,
        kind: NameKind,
    ) -> Option<Vec<NamePattern>> {
        self.parse_items(place, value, |text| NamePattern::parse(text, kind))
    }

    /// A list of texts, each read by `read`. An empty list would be a rule for nothing.
    fn parse_items<T>(
        &mut self,
        place: &str,
        value: Option<&Value>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let items = self.expect_list(place, value, false)?;
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}[{index}]");
            if let Some(text) = self.expect_text(place.clone(), Some(item)) {
                all.extend(self.record_error(place, read(text)));
            }
        }
        Some(all)
    }

    fn parse_rule_name(&mut self, place: String, value: Option<&Value>) -> Option<String> {
        let text = self.expect_text(place.clone(), value)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if (1..=MAX_RULE_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Some(text.to_owned());
        }
        let rule = format!("1 to {MAX_RULE_NAME} letters, digits, `-`, `.` and `_`");
        self.add_problem(place, format!("`{text}` is not a name of {rule}"));
        None
    }

    fn expect_constant(&mut self, fields: &Map<String, Value>, field: &str, expected: &str) {
        if let Some(text) = self.expect_text(field.to_owned(), fields.get(field))
            && text != expected
        {
            self.add_problem(field.to_owned(), format!("it is `{text}` and not `{expected}`"));
        }
    }

    fn expect_mapping<'v>(
        &mut self,
        place: &str,
        value: &'v Value,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Value::Object(fields) = value else {
            self.add_problem(
                place.to_owned(),
                format!("it is {} and not a mapping", json_type_name(value)),
            );
            return None;
        };
        for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
            let place = if place.is_empty() { field.clone() } else { format!("{place}.{field}") };
            self.add_problem(place, format!("there is no such field; known: {}", known.join(", ")));
        }
        Some(fields)
    }

    fn expect_list<'v>(
        &mut self,
        place: &str,
        value: Option<&'v Value>,
        may_be_empty: bool,
    ) -> Option<&'v [Value]> {
        match value {
            Some(Value::Array(items)) if may_be_empty || !items.is_empty() => Some(items),
            Some(Value::Array(_)) => {
                self.add_problem(place.to_owned(), "the list is empty".to_owned());
                None
            }
            Some(value) => {
                self.add_problem(
                    place.to_owned(),
                    format!("it is {} and not a list", json_type_name(value)),
                );
                None
            }
            None => {
                self.add_problem(place.to_owned(), "it is missing".to_owned());
                None
            }
        }
    }

    fn expect_text<'v>(&mut self, place: String, value: Option<&'v Value>) -> Option<&'v str> {
        match value {
            Some(Value::String(text)) => Some(text),
            Some(value) => {
                let kind = json_type_name(value);
                self.add_problem(place, format!("it is {kind} and not a text; put it in quotes"));
                None
            }
            None => {
                self.add_problem(place, "it is missing".to_owned());
                None
            }
        }
    }

    fn record_error<T>(&mut self, place: String, read: Result<T, String>) -> Option<T> {
        read.map_err(|reason| self.add_problem(place, reason)).ok()
    }

    fn add_problem(&mut self, field: String, reason: String) {
        self.problems.push(PolicyProblem { field, reason });
    }
}

const fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
