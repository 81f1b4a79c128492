//! Parses and serializes the policy file. Parsing is strict and reports every problem together.
//!
//! An unknown field is an error: a policy with a misspelt field would have another meaning than its author
//! intended.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::policy::NodePolicy;
use crate::policy::error::{PolicyProblem, PolicyProblems};
use crate::policy::pattern::{IdentityPattern, NameKind, NamePattern, ObjectPattern};
use crate::policy::rule::{PolicyRule, VaultGrant};

/// The `apiVersion` of a policy.
const API_VERSION: &str = "lanyard.dev/v1alpha1";
/// The `kind` of a policy.
const KIND: &str = "NodePolicy";
/// The maximum length of a rule name.
const MAX_RULE_NAME: usize = 63;

impl NodePolicy {
    /// Parses a policy in YAML or JSON.
    ///
    /// # Errors
    /// Returns every problem, each with the path of its field.
    pub fn parse(text: &str) -> Result<Self, PolicyProblems> {
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let reason = format!("this is not YAML: {error}");
            PolicyProblems(vec![PolicyProblem { field: String::new(), reason }])
        })?;
        let mut problems = Vec::new();
        let rules = PolicyDocumentParser { problems: &mut problems }.parse_document(&value);
        if problems.is_empty() { Ok(Self { rules }) } else { Err(PolicyProblems(problems)) }
    }

    /// Returns the policy as a document that [`NodePolicy::parse`] accepts.
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

/// Walks the document. An invalid part is recorded as a problem and skipped.
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
            let path = format!("rules[{index}]");
            if let Some(rule) = self.parse_rule(&path, item) {
                if !names.insert(rule.name.clone()) {
                    let reason = format!("another rule has the name `{}`", rule.name);
                    self.add_problem(format!("{path}.name"), reason);
                }
                rules.push(rule);
            }
        }
        rules
    }

    fn parse_rule(&mut self, path: &str, value: &Value) -> Option<PolicyRule> {
        let known = ["name", "namespaces", "classes", "identities", "vaults"];
        let fields = self.expect_mapping(path, value, &known)?;
        let at = |field: &str| format!("{path}.{field}");
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

    fn parse_vaults(&mut self, path: &str, value: Option<&Value>) -> Option<Vec<VaultGrant>> {
        let items = self.expect_list(path, value, false)?;
        let mut grants = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(fields) = self.expect_mapping(&path, item, &["name", "objects"]) else {
                continue;
            };
            let name = self.expect_text(format!("{path}.name"), fields.get("name"));
            let name = name.and_then(|text| {
                self.record_error(format!("{path}.name"), NamePattern::parse(text, NameKind::Vault))
            });
            let objects = self.parse_items(
                &format!("{path}.objects"),
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
        path: &str,
        value: Option<&Value>,
        kind: NameKind,
    ) -> Option<Vec<NamePattern>> {
        self.parse_items(path, value, |text| NamePattern::parse(text, kind))
    }

    /// Parses a list of strings with `read`. An empty list is an error, because the rule would never match.
    fn parse_items<T>(
        &mut self,
        path: &str,
        value: Option<&Value>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let items = self.expect_list(path, value, false)?;
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(text) = self.expect_text(path.clone(), Some(item)) {
                all.extend(self.record_error(path, read(text)));
            }
        }
        Some(all)
    }

    fn parse_rule_name(&mut self, path: String, value: Option<&Value>) -> Option<String> {
        let text = self.expect_text(path.clone(), value)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if (1..=MAX_RULE_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Some(text.to_owned());
        }
        let rule = format!("1 to {MAX_RULE_NAME} letters, digits, `-`, `.` and `_`");
        self.add_problem(path, format!("`{text}` is not a name of {rule}"));
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
        path: &str,
        value: &'v Value,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Value::Object(fields) = value else {
            self.add_problem(
                path.to_owned(),
                format!("it is {} and not a mapping", json_type_name(value)),
            );
            return None;
        };
        for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            self.add_problem(path, format!("unknown field; known: {}", known.join(", ")));
        }
        Some(fields)
    }

    fn expect_list<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
        may_be_empty: bool,
    ) -> Option<&'v [Value]> {
        match value {
            Some(Value::Array(items)) if may_be_empty || !items.is_empty() => Some(items),
            Some(Value::Array(_)) => {
                self.add_problem(path.to_owned(), "the list is empty".to_owned());
                None
            }
            Some(value) => {
                self.add_problem(
                    path.to_owned(),
                    format!("it is {} and not a list", json_type_name(value)),
                );
                None
            }
            None => {
                self.add_problem(path.to_owned(), "it is missing".to_owned());
                None
            }
        }
    }

    fn expect_text<'v>(&mut self, path: String, value: Option<&'v Value>) -> Option<&'v str> {
        match value {
            Some(Value::String(text)) => Some(text),
            Some(value) => {
                let kind = json_type_name(value);
                self.add_problem(path, format!("it is {kind} and not a text; put it in quotes"));
                None
            }
            None => {
                self.add_problem(path, "it is missing".to_owned());
                None
            }
        }
    }

    fn record_error<T>(&mut self, path: String, read: Result<T, String>) -> Option<T> {
        read.map_err(|reason| self.add_problem(path, reason)).ok()
    }

    fn add_problem(&mut self, field: String, reason: String) {
        self.problems.push(PolicyProblem { field, reason });
    }
}

const fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
