//! The arguments of Helm. Does no I/O.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::ids::HelmReleaseId;
use crate::ownership_tags::OwnershipTags;

/// Where Helm finds a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelmChart {
    /// A directory or an archive of this machine.
    Path(PathBuf),
    /// A chart of an OCI registry: `oci://<registry>/<path>`.
    Oci(String),
    /// A chart of a chart repository.
    Repository {
        /// The URL of the repository.
        url: String,
        /// The name of the chart.
        name: String,
    },
}

/// A Helm release. Its name and its namespace are those of the id.
///
/// Plans and the journal contain the values, so they must not contain secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct HelmRelease {
    /// The chart.
    pub chart: HelmChart,
    /// The exact version of the chart. `None` takes the latest one for a new release, and is not compared.
    pub version: Option<String>,
    /// All values that differ from the defaults of the chart; null for none. They can be references to values of other
    /// resources.
    pub values: Value,
    /// How long Helm waits for each hook, and for the objects to become ready.
    pub timeout: Duration,
    /// Whether the namespace of a new release is created.
    pub creates_namespace: bool,
    /// Whether Helm itself returns to the revision before if the write fails, and uninstalls a new release.
    pub rolls_back: bool,
}

/// The major version in the output of `helm version`; `None` for one without labels of releases (before 3.13) and for an
/// unknown one.
pub(super) fn major_version(text: &str) -> Option<u32> {
    let mut numbers = text.trim().strip_prefix('v')?.split('.').map(str::parse);
    match (numbers.next()?.ok()?, numbers.next()?.ok()?) {
        (3, 13..) => Some(3),
        (4, _) => Some(4),
        _ => None,
    }
}

/// The arguments of an install or upgrade. Helm reads the values from its standard input, so that neither the list of
/// processes nor a file shows them.
///
/// The ownership tags become labels of the release, which Helm keeps in each revision, also in one that fails.
pub(super) fn upgrade_arguments(
    id: &HelmReleaseId,
    release: &HelmRelease,
    tags: Option<&OwnershipTags>,
    major_version: u32,
) -> Vec<String> {
    let mut arguments = vec!["upgrade".to_owned(), id.name.clone()];
    match &release.chart {
        HelmChart::Path(path) => arguments.push(path.display().to_string()),
        HelmChart::Oci(url) => arguments.push(url.clone()),
        HelmChart::Repository { url, name } => {
            arguments.extend([name.clone(), format!("--repo={url}")]);
        }
    }
    let is_path = matches!(release.chart, HelmChart::Path(_));
    if let Some(version) = release.version.as_ref().filter(|_| !is_path) {
        arguments.push(format!("--version={version}"));
    }
    let namespace = format!("--namespace={}", id.namespace);
    let timeout = format!("--timeout={}s", release.timeout.as_secs());
    let mut flags = vec!["--install", "--reset-values", "--values=-", "--output=json"];
    flags.extend([&*namespace, &*timeout]);
    let is_three = major_version == 3;
    flags.push(if is_three { "--wait" } else { "--wait=watcher" });
    if release.creates_namespace {
        flags.push("--create-namespace");
    }
    if release.rolls_back {
        flags.push(if is_three { "--atomic" } else { "--rollback-on-failure" });
    }
    arguments.extend(flags.into_iter().map(str::to_owned));
    if let Some(tags) = tags {
        let labels = tags.pairs().map(|(name, value)| format!("{name}={value}"));
        arguments.push(format!("--labels={}", labels.join(",")));
    }
    arguments
}

/// The arguments of a command for an existing release, such as `status` or `uninstall`.
pub(super) fn release_arguments(
    command: &[&str],
    id: &HelmReleaseId,
    flags: &[&str],
) -> Vec<String> {
    let namespace = format!("--namespace={}", id.namespace);
    let arguments = [command, &[&id.name], flags, &[&namespace]].concat();
    arguments.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> HelmReleaseId {
        let [cluster, namespace, name] = ["weu", "shop", "api"].map(str::to_owned);
        HelmReleaseId { cluster, namespace, name }
    }

    #[test]
    fn only_versions_with_labels_are_used() {
        for (text, expected) in [
            ("v4.3.1\n", Some(4)),
            ("v4.0.0-rc.1+g1", Some(4)),
            ("v3.13.0", Some(3)),
            ("v3.19.2+gabc", Some(3)),
            ("v3.12.3", None),
            ("v2.17.0", None),
            ("v5.0.0", None),
            ("4.0.0", None),
            ("", None),
        ] {
            assert_eq!(major_version(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_name_chart_version_and_labels_and_never_values() {
        let tags = OwnershipTags::new("shop", "shop-weu");
        let arguments = |chart: &HelmChart, helm, rolls_back| {
            let release = HelmRelease {
                chart: chart.clone(),
                version: Some("1.2.3".to_owned()),
                values: serde_json::json!({ "key": "planted" }),
                timeout: Duration::from_secs(90),
                creates_namespace: rolls_back,
                rolls_back,
            };
            upgrade_arguments(&id(), &release, rolls_back.then_some(&tags), helm).join(" ")
        };
        let flags =
            "--install --reset-values --values=- --output=json --namespace=shop --timeout=90s";
        let oci = HelmChart::Oci("oci://r.example/charts/api".to_owned());
        assert_eq!(
            arguments(&oci, 4, true),
            format!(
                "upgrade api oci://r.example/charts/api --version=1.2.3 {flags} --wait=watcher \
                 --create-namespace --rollback-on-failure \
                 --labels=lanyard-cluster=shop,lanyard-infra-id=shop-weu"
            )
        );
        let [url, name] = ["https://charts.example", "api"].map(str::to_owned);
        assert_eq!(
            arguments(&HelmChart::Repository { url, name }, 3, false),
            format!("upgrade api api --repo=https://charts.example --version=1.2.3 {flags} --wait")
        );
        assert_eq!(
            arguments(&HelmChart::Path("/c".into()), 3, true),
            format!(
                "upgrade api /c {flags} --wait --create-namespace --atomic \
                 --labels=lanyard-cluster=shop,lanyard-infra-id=shop-weu"
            )
        );
        let arguments = release_arguments(&["get", "all"], &id(), &["--output=json"]);
        assert_eq!(arguments.join(" "), "get all api --output=json --namespace=shop");
    }
}
