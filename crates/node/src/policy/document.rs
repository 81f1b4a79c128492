//! The policy file: read strictly, every problem at once, and written.
//!
//! A field that is not known is a problem. A policy with a misspelt word means something else than
//! its author thinks, and is better refused than obeyed.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::policy::Policy;
use crate::policy::pattern::{IdentityPattern, NameKind, ObjectPattern, Pattern};
use crate::policy::problem::{PolicyProblem, PolicyProblems};
use crate::policy::rule::{Rule, VaultGrant};

/// `apiVersion` of a policy.
const API_VERSION: &str = "lanyard.dev/v1alpha1";
/// `kind` of a policy.
const KIND: &str = "NodePolicy";
/// The longest name of a rule.
const LONGEST_NAME: usize = 63;

impl Policy {
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
        let rules = Reader { problems: &mut problems }.document(&value);
        if problems.is_empty() { Ok(Self { rules }) } else { Err(PolicyProblems(problems)) }
    }

    /// The policy as a document that [`Policy::parse`] reads.
    pub fn to_document(&self) -> impl Serialize + use<> {
        Document {
            api_version: API_VERSION,
            kind: KIND,
            rules: self.rules.iter().map(WrittenRule::of).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: &'static str,
    kind: &'static str,
    rules: Vec<WrittenRule>,
}

#[derive(Serialize)]
struct WrittenRule {
    name: String,
    namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identities: Option<Vec<String>>,
    vaults: Vec<WrittenGrant>,
}

#[derive(Serialize)]
struct WrittenGrant {
    name: String,
    objects: Vec<String>,
}

impl WrittenRule {
    fn of(rule: &Rule) -> Self {
        Self {
            name: rule.name.clone(),
            namespaces: texts(&rule.namespaces),
            classes: rule.classes.as_deref().map(texts),
            identities: rule.identities.as_deref().map(texts),
            vaults: rule.vaults.iter().map(WrittenGrant::of).collect(),
        }
    }
}

impl WrittenGrant {
    fn of(grant: &VaultGrant) -> Self {
        Self { name: grant.name.to_string(), objects: texts(&grant.objects) }
    }
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// Walks the document; what cannot be read becomes a problem and is passed over.
struct Reader<'a> {
    problems: &'a mut Vec<PolicyProblem>,
}

impl Reader<'_> {
    fn document(&mut self, value: &Value) -> Vec<Rule> {
        let Some(fields) = self.mapping("", value, &["apiVersion", "kind", "rules"]) else {
            return Vec::new();
        };
        self.constant(fields, "apiVersion", API_VERSION);
        self.constant(fields, "kind", KIND);
        let items = self.list("rules", fields.get("rules"), true).unwrap_or_default();
        let mut names = BTreeSet::new();
        let mut rules = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("rules[{index}]");
            if let Some(rule) = self.rule(&place, item) {
                if !names.insert(rule.name.clone()) {
                    let reason = format!("another rule is called `{}` already", rule.name);
                    self.problem(format!("{place}.name"), reason);
                }
                rules.push(rule);
            }
        }
        rules
    }

    fn rule(&mut self, place: &str, value: &Value) -> Option<Rule> {
        let known = ["name", "namespaces", "classes", "identities", "vaults"];
        let fields = self.mapping(place, value, &known)?;
        let at = |field: &str| format!("{place}.{field}");
        let name = self.name(at("name"), fields.get("name"));
        let namespaces =
            self.patterns(&at("namespaces"), fields.get("namespaces"), NameKind::Namespace);
        let classes = fields.get("classes").map(|value| {
            self.patterns(&at("classes"), Some(value), NameKind::Class).unwrap_or_default()
        });
        let identities = fields.get("identities").map(|value| {
            self.each(&at("identities"), Some(value), IdentityPattern::from_str).unwrap_or_default()
        });
        let vaults = self.vaults(&at("vaults"), fields.get("vaults"));
        Some(Rule { name: name?, namespaces: namespaces?, classes, identities, vaults: vaults? })
    }

    fn vaults(&mut self, place: &str, value: Option<&Value>) -> Option<Vec<VaultGrant>> {
        let items = self.list(place, value, false)?;
        let mut grants = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}[{index}]");
            let Some(fields) = self.mapping(&place, item, &["name", "objects"]) else { continue };
            let name = self.text(format!("{place}.name"), fields.get("name"));
            let name = name.and_then(|text| {
                self.read(format!("{place}.name"), Pattern::parse(text, NameKind::Vault))
            });
            let objects = self.each(
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

    fn patterns(
        &mut self,
        place: &str,
        value: Option<&Value>,
        kind: NameKind,
    ) -> Option<Vec<Pattern>> {
        self.each(place, value, |text| Pattern::parse(text, kind))
    }

    /// A list of texts, each read by `read`. An empty list would be a rule for nothing.
    fn each<T>(
        &mut self,
        place: &str,
        value: Option<&Value>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let items = self.list(place, value, false)?;
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}[{index}]");
            if let Some(text) = self.text(place.clone(), Some(item)) {
                all.extend(self.read(place, read(text)));
            }
        }
        Some(all)
    }

    fn name(&mut self, place: String, value: Option<&Value>) -> Option<String> {
        let text = self.text(place.clone(), value)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Some(text.to_owned());
        }
        let rule = format!("1 to {LONGEST_NAME} letters, digits, `-`, `.` and `_`");
        self.problem(place, format!("`{text}` is not a name of {rule}"));
        None
    }

    fn constant(&mut self, fields: &Map<String, Value>, field: &str, expected: &str) {
        if let Some(text) = self.text(field.to_owned(), fields.get(field))
            && text != expected
        {
            self.problem(field.to_owned(), format!("it is `{text}` and not `{expected}`"));
        }
    }

    fn mapping<'v>(
        &mut self,
        place: &str,
        value: &'v Value,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Value::Object(fields) = value else {
            self.problem(place.to_owned(), format!("it is {} and not a mapping", kind_of(value)));
            return None;
        };
        for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
            let place = if place.is_empty() { field.clone() } else { format!("{place}.{field}") };
            self.problem(place, format!("there is no such field; known: {}", known.join(", ")));
        }
        Some(fields)
    }

    fn list<'v>(
        &mut self,
        place: &str,
        value: Option<&'v Value>,
        may_be_empty: bool,
    ) -> Option<&'v [Value]> {
        match value {
            Some(Value::Array(items)) if may_be_empty || !items.is_empty() => Some(items),
            Some(Value::Array(_)) => {
                self.problem(place.to_owned(), "the list is empty".to_owned());
                None
            }
            Some(value) => {
                self.problem(place.to_owned(), format!("it is {} and not a list", kind_of(value)));
                None
            }
            None => {
                self.problem(place.to_owned(), "it is missing".to_owned());
                None
            }
        }
    }

    fn text<'v>(&mut self, place: String, value: Option<&'v Value>) -> Option<&'v str> {
        match value {
            Some(Value::String(text)) => Some(text),
            Some(value) => {
                let kind = kind_of(value);
                self.problem(place, format!("it is {kind} and not a text; put it in quotes"));
                None
            }
            None => {
                self.problem(place, "it is missing".to_owned());
                None
            }
        }
    }

    fn read<T>(&mut self, place: String, read: Result<T, String>) -> Option<T> {
        read.map_err(|reason| self.problem(place, reason)).ok()
    }

    fn problem(&mut self, field: String, reason: String) {
        self.problems.push(PolicyProblem { field, reason });
    }
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
