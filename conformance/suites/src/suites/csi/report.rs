//! Parses the report of csi-sanity, the JSON report of Ginkgo v2.

use serde::Deserialize;

/// A spec that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SanitySpec {
    pub(super) name: String,
    pub(super) failure: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GinkgoReport {
    spec_reports: Vec<GinkgoSpecReport>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GinkgoSpecReport {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    failure: Option<GinkgoFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GinkgoFailure {
    #[serde(default)]
    message: String,
}

/// The specs that ran. Skipped specs are omitted; a setup node is listed if it failed.
pub(super) fn parse_report(report: &[u8]) -> serde_json::Result<Vec<SanitySpec>> {
    let reports: Vec<GinkgoReport> = serde_json::from_slice(report)?;
    let specs = reports.into_iter().flat_map(|report| report.spec_reports);
    Ok(specs.filter_map(GinkgoSpecReport::into_spec).collect())
}

impl GinkgoSpecReport {
    fn into_spec(self) -> Option<SanitySpec> {
        let is_spec = self.leaf_node_type == "It";
        let mut words = self.container_hierarchy_texts.unwrap_or_default();
        words.push(if is_spec { self.leaf_node_text } else { self.leaf_node_type });
        let name = words.join(" ");
        match self.state.as_str() {
            "passed" => is_spec.then_some(SanitySpec { name, failure: None }),
            "skipped" | "pending" => None,
            state => {
                let message = self.failure.map(|it| it.message).unwrap_or_default();
                Some(SanitySpec { name, failure: Some(format!("{state}: {message}")) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executed_specs_are_listed() {
        let report = br#"[{"SpecReports": [
            {"ContainerHierarchyTexts": ["Node Service", "NodeGetInfo"], "LeafNodeType": "It",
             "LeafNodeText": "should return appropriate values", "State": "passed"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "It", "LeafNodeText": "b", "State": "failed",
             "Failure": {"Message": "Expected 1"}},
            {"ContainerHierarchyTexts": [], "LeafNodeType": "It", "LeafNodeText": "c", "State": "skipped"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "panicked"}
        ]}]"#;
        let specs = parse_report(report).expect("it is a report");
        let observed: Vec<_> =
            specs.iter().map(|it| (it.name.as_str(), it.failure.as_deref())).collect();
        let expected = [
            ("Node Service NodeGetInfo should return appropriate values", None),
            ("b", Some("failed: Expected 1")),
            ("BeforeSuite", Some("panicked: ")),
        ];
        assert_eq!(observed, expected);
        assert!(parse_report(b"{}").is_err());
    }
}
