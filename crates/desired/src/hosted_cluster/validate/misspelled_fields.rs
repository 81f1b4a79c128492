//! Unknown fields of the spec whose names are close to those of fields of the schema: they are probably
//! misspelled. An API server whose CRD prunes unknown fields drops them without a message; lanyard's
//! CRD preserves those of `spec`, `spec.platform` and `status`.

use std::fmt;
use std::sync::LazyLock;

use lanyard_api::HostedCluster;
use lanyard_api::crd_definitions::crd_manifests;
use serde_json::{Map, Value};

use crate::problem::{ProblemSeverity, ValidationProblem, ValidationProblems};

/// An unknown field, and the field of the schema that it probably means.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MisspelledField {
    /// The path of the object that contains the field, such as `spec.platform`.
    parent: String,
    name: String,
    nearest_name: String,
}

/// The path of a value in the spec. Its text is needed only for a misspelled field.
#[derive(Debug, Clone, Copy)]
enum ValuePath<'a> {
    /// `spec` itself.
    Spec,
    /// A field of an object.
    Field(&'a Self, &'a str),
    /// An item of a list.
    Item(&'a Self, usize),
}

/// The schema of `spec` of a HostedCluster, built once: each reconciliation of the operator needs it.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut manifests = crd_manifests().into_iter();
    let manifest = manifests.find(|it| it.value["spec"]["names"]["kind"] == HostedCluster::KIND);
    let schema = manifest.map(|mut it| {
        let schema = &mut it.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"].take()
    });
    schema.unwrap_or_default()
});

/// Adds the misspelled fields in the spec of a HostedCluster to its problems: a required field that is missing
/// because its name is misspelled gets a hint with the name, and every other one is a lint.
pub fn report_misspelled_fields(
    wire: &HostedCluster,
    problems: ValidationProblems,
) -> ValidationProblems {
    let mut misspelled = find_misspelled_fields(wire);
    let mut reported: Vec<ValidationProblem> = problems.into_iter().collect();
    for problem in reported.iter_mut().filter(|it| it.message.starts_with(REQUIRED)) {
        let cause = misspelled.iter().position(|it| it.nearest_path() == problem.field);
        if let Some(cause) = cause.map(|index| misspelled.remove(index)) {
            problem.hint = Some(cause.hint());
        }
    }
    reported.extend(misspelled.iter().map(MisspelledField::to_lint));
    reported.into_iter().collect()
}

/// Returns an error for each of these missing fields of which the HostedCluster has a misspelled one.
/// It is for optional fields with a generated value, which would replace the intended value.
pub fn report_misspelled_missing_fields(
    wire: &HostedCluster,
    fields: &[&str],
) -> ValidationProblems {
    let misspelled = find_misspelled_fields(wire).into_iter();
    let causes = misspelled.filter(|it| fields.contains(&it.nearest_path().as_str()));
    causes.map(|cause| cause.to_missing_field_error()).collect()
}

/// The message of the API server for a missing field.
const REQUIRED: &str = "Required value";

fn find_misspelled_fields(wire: &HostedCluster) -> Vec<MisspelledField> {
    let Ok(spec) = serde_json::to_value(&wire.spec) else { return Vec::new() };
    let mut found = Vec::new();
    compare_with_schema(&spec, &SCHEMA, ValuePath::Spec, &mut found);
    found
}

fn compare_with_schema(
    value: &Value,
    schema: &Value,
    path: ValuePath<'_>,
    found: &mut Vec<MisspelledField>,
) {
    match value {
        Value::Object(fields) => {
            let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
            for (name, value) in fields {
                match known.get(name) {
                    Some(schema) if value.is_object() || value.is_array() => {
                        compare_with_schema(value, schema, ValuePath::Field(&path, name), found);
                    }
                    Some(_) => {}
                    None => found.extend(nearest_field(name, fields, known).map(|nearest_name| {
                        MisspelledField {
                            parent: path.to_string(),
                            name: name.clone(),
                            nearest_name: nearest_name.to_owned(),
                        }
                    })),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                compare_with_schema(item, &schema["items"], ValuePath::Item(&path, index), found);
            }
        }
        _ => {}
    }
}

/// The field of the schema with the nearest name, among those that the object lacks.
fn nearest_field<'a>(
    name: &str,
    fields: &Map<String, Value>,
    known: &'a Map<String, Value>,
) -> Option<&'a str> {
    let name = name.to_lowercase();
    let letters = name.chars().count();
    // The distance is not less than the difference of the lengths, which is cheaper to compare.
    let comparable =
        known.keys().filter(|known| known.len().abs_diff(letters) <= tolerated_distance(known));
    let absent = comparable.filter(|known| !fields.contains_key(*known));
    let distances =
        absent.map(|known| (strsim::osa_distance(&name, &known.to_lowercase()), known.as_str()));
    let near = distances.filter(|(distance, known)| *distance <= tolerated_distance(known));
    near.min().map(|(_, known)| known)
}

/// The number of letters that may differ: a fourth of them, and at most two.
fn tolerated_distance(known: &str) -> usize {
    (known.len() / 4).min(2)
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec => formatter.write_str("spec"),
            Self::Field(parent, name) => write!(formatter, "{parent}.{name}"),
            Self::Item(parent, index) => write!(formatter, "{parent}[{index}]"),
        }
    }
}

impl MisspelledField {
    fn path(&self) -> String {
        format!("{}.{}", self.parent, self.name)
    }

    fn nearest_path(&self) -> String {
        format!("{}.{}", self.parent, self.nearest_name)
    }

    fn hint(&self) -> String {
        format!("write `{}` instead of `{}`", self.nearest_name, self.name)
    }

    fn to_lint(&self) -> ValidationProblem {
        ValidationProblem {
            field: self.path(),
            severity: ProblemSeverity::Lint,
            message: "unknown field, which has no effect".to_owned(),
            hint: Some(self.hint()),
        }
    }

    fn to_missing_field_error(&self) -> ValidationProblem {
        ValidationProblem {
            field: self.path(),
            severity: ProblemSeverity::Error,
            message: format!(
                "unknown field, and `{}` is missing: no value is generated for it",
                self.nearest_path()
            ),
            hint: Some(self.hint()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ParseHostedClusterError, parse_hosted_cluster};
    use super::*;
    use crate::fixture::EXAMPLE_YAML;

    /// The problems of the example with a replaced text, as lines with their hints.
    fn problems_after_replacing(text: &str, by: &str) -> Vec<String> {
        assert!(EXAMPLE_YAML.contains(text), "{text}");
        let problems = match parse_hosted_cluster(&EXAMPLE_YAML.replace(text, by)) {
            Ok(parsed) => parsed.lints,
            Err(ParseHostedClusterError::Invalid(problems)) => problems,
            Err(error) => panic!("{error}"),
        };
        let line = |it: &ValidationProblem| {
            let hint = it.hint.as_deref().unwrap_or_default();
            format!("{}: {it} ({hint})", it.severity)
        };
        problems.iter().map(line).collect()
    }

    #[test]
    fn misspelled_optional_field_is_a_lint_with_the_nearest_name() {
        let lints = problems_after_replacing("      topology:", "      topolgy:");
        let expected = "lint: spec.platform.azure.topolgy: unknown field, which has no effect \
            (write `topology` instead of `topolgy`)";
        assert_eq!(lints, [expected]);
    }

    #[test]
    fn misspelled_field_in_a_list_is_a_lint() {
        let problems = problems_after_replacing(
            "          hostname: ignition.harbour.hcp.example.com",
            "          hostnme: ignition.harbour.hcp.example.com",
        );
        let expected = "spec.services[3].servicePublishingStrategy.route.hostnme";
        assert!(problems.iter().any(|it| it.contains(expected)), "{problems:#?}");
    }

    #[test]
    fn missing_required_field_names_the_misspelled_one() {
        let problems = problems_after_replacing("      vnetID:", "      vnetId:");
        let expected = "error: spec.platform.azure.vnetID: Required value (write `vnetID` instead of `vnetId`)";
        assert!(problems.contains(&expected.to_owned()), "{problems:#?}");
        assert!(!problems.iter().any(|it| it.starts_with("lint")), "{problems:#?}");
    }

    #[test]
    fn misspelled_optional_field_is_an_error_if_its_value_would_be_generated() {
        let text = EXAMPLE_YAML.replace("  infraID:", "  infraId:");
        let wire = HostedCluster::parse_yaml(&text).unwrap();
        let problems = report_misspelled_missing_fields(&wire, &["spec.infraID", "spec.clusterID"]);
        let lines: Vec<_> = problems.iter().map(ValidationProblem::line_with_hint).collect();
        let expected = "spec.infraId: unknown field, and `spec.infraID` is missing: no value is generated for it; next: write `infraID` instead of `infraId`";
        assert_eq!(lines, [expected]);
        assert!(problems.has_errors());
        assert!(report_misspelled_missing_fields(&wire, &["spec.clusterID"]).is_empty());
    }

    #[test]
    fn platform_with_another_case_is_the_hint_of_the_missing_one() {
        let problems = problems_after_replacing("    azure:", "    Azure:");
        let expected =
            "error: spec.platform.azure: Required value (write `azure` instead of `Azure`)";
        assert!(problems.contains(&expected.to_owned()), "{problems:#?}");
    }

    #[test]
    fn fields_of_other_versions_are_no_misspellings() {
        let fields = "spec:\n  autoscaling: {}\n  \
            olmCatalogPlacement: management\n  updateService: https://updates.example.com\n";
        let lints = problems_after_replacing("\nspec:\n", &format!("\n{fields}"));
        assert_eq!(lints, Vec::<String>::new());
    }

    #[test]
    fn only_near_names_are_misspellings() {
        let known: Map<_, _> = ["dns", "type", "topology", "keyVaultName"]
            .into_iter()
            .map(|name| (name.to_owned(), Value::Null))
            .collect();
        for (name, expected) in [
            ("tpye", Some("type")),
            ("TYPE", Some("type")),
            ("topolgy", Some("topology")),
            ("keyVaultNme", Some("keyVaultName")),
            ("DNS", Some("dns")),
            ("fips", None),
            ("aws", None),
            ("topic", None),
        ] {
            assert_eq!(nearest_field(name, &Map::new(), &known), expected, "{name}");
        }
        assert_eq!(nearest_field("Type", &known, &known), None, "the field is there, too");
    }
}
