//! The report that csi-sanity leaves, in the JSON of its test framework (Ginkgo v2).

use serde::Deserialize;

/// A spec that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) failure: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<SpecReport>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    failure: Option<Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// The specs that ran. What was skipped, before or while it ran, did not. A set-up around the
/// specs counts when it failed.
pub(super) fn parse(report: &[u8]) -> serde_json::Result<Vec<Spec>> {
    let reports: Vec<Report> = serde_json::from_slice(report)?;
    let specs = reports.into_iter().flat_map(|report| report.spec_reports);
    Ok(specs.filter_map(SpecReport::into_spec).collect())
}

impl SpecReport {
    fn into_spec(self) -> Option<Spec> {
        let is_spec = self.leaf_node_type == "It";
        let mut words = self.container_hierarchy_texts.unwrap_or_default();
        words.push(if is_spec { self.leaf_node_text } else { self.leaf_node_type });
        let name = words.join(" ");
        match self.state.as_str() {
            "passed" => is_spec.then_some(Spec { name, failure: None }),
            "skipped" | "pending" => None,
            state => {
                let message = self.failure.map(|it| it.message).unwrap_or_default();
                Some(Spec { name, failure: Some(format!("{state}: {message}")) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_that_ran_are_listed_and_others_are_not() {
        let report = br#"[{"SpecReports": [
            {"ContainerHierarchyTexts": ["Node Service", "NodeGetInfo"], "LeafNodeType": "It",
             "LeafNodeText": "should return appropriate values", "State": "passed"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "It", "LeafNodeText": "b", "State": "failed",
             "Failure": {"Message": "Expected 1"}},
            {"ContainerHierarchyTexts": [], "LeafNodeType": "It", "LeafNodeText": "c", "State": "skipped"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "panicked"}
        ]}]"#;
        let specs = parse(report).expect("it is a report");
        let seen: Vec<_> =
            specs.iter().map(|it| (it.name.as_str(), it.failure.as_deref())).collect();
        let expected = [
            ("Node Service NodeGetInfo should return appropriate values", None),
            ("b", Some("failed: Expected 1")),
            ("BeforeSuite", Some("panicked: ")),
        ];
        assert_eq!(seen, expected);
        assert!(parse(b"{}").is_err());
    }
}
