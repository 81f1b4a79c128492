//! Reads a `fleet.yaml`: variables of the environment, unknown fields, and every value.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lanyard_azure::{ArmBody as _, ManagedClusterBody, VaultBody};
use lanyard_clock::ErrorHint;
use lanyard_infra::azure_name_rules::{AzureNameRule, MANAGED_IDENTITY, RESOURCE_GROUP};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId, format_error_chain, parse_go_duration};

use crate::document_variables::resolve_variables;
use crate::fleet::{
    Application, Fleet, FleetCluster, IdentityPlace, NAME_LABEL, Overlay, VaultSecrets,
};
use crate::fleet_document::{
    ApplicationEntry, ClusterDefaults, ClusterEntry, FleetDocument, KeyVaultEntry, ShareEntry,
    WaveEntry,
};
use crate::fleet_label::FleetLabel;
use crate::unknown_fields::find_unknown_fields;
use crate::wave_rule::{ClusterShare, WaveRule};

const API_VERSION: &str = "lanyard.dev/v1alpha1";
const KIND: &str = "Fleet";
const DEFAULT_AUDIENCE: &str = "api://AzureADTokenExchange";
const DEFAULT_IDENTITY_NAME: &str = "${fleet}-${application}-${cluster}";

/// A `fleet.yaml` cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetFileError {
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not YAML, or a field has a value of another type.
    #[error("{path} is not a fleet file: {problem}")]
    Malformed {
        /// The path of the file.
        path: PathBuf,
        /// Where, and why.
        problem: String,
    },
    /// Fields are unknown, or have invalid values.
    #[error("{path} has {}: {}", count_problems(.problems), .problems.join("; "))]
    Values {
        /// The path of the file.
        path: PathBuf,
        /// One problem for each field.
        problems: Vec<String>,
    },
}

/// The largest file: a fleet of 2,000 clusters has about 500 KB.
const MAX_FILE: u64 = 4 << 20;

fn read_limited(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() > MAX_FILE.try_into().unwrap_or(usize::MAX) {
        return Err(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            "it has more than 4 MiB",
        ));
    }
    Ok(text)
}

fn count_problems(problems: &[String]) -> String {
    match problems {
        [_] => "a problem".to_owned(),
        _ => format!("{} problems", problems.len()),
    }
}

impl ErrorHint for FleetFileError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unreadable { .. } => "check the path and its permissions",
            Self::Malformed { .. } | Self::Values { .. } => {
                "correct the file; `lanyard fleet schema` prints its JSON Schema, with which editors complete and check it"
            }
        }))
    }

    fn is_invalid_input(&self) -> bool {
        true
    }
}

impl Fleet {
    /// Reads a `fleet.yaml`. `variable` returns a variable of the environment.
    ///
    /// # Errors
    ///
    /// [`FleetFileError`], which names every problem with fields.
    pub fn read(
        path: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FleetFileError> {
        let named = || path.to_owned();
        let text = read_limited(path)
            .map_err(|source| FleetFileError::Unreadable { path: named(), source })?;
        Self::parse(&text, variable).map_err(|problem| match problem {
            ParseFleetError::Malformed(problem) => {
                FleetFileError::Malformed { path: named(), problem }
            }
            ParseFleetError::Values(problems) => FleetFileError::Values { path: named(), problems },
        })
    }

    pub(crate) fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ParseFleetError> {
        let malformed = |problem: String| ParseFleetError::Malformed(problem);
        let mut value: serde_json::Value =
            serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let mut problems = Problems::default();
        problems.0.extend(resolve_variables(&mut value, &variable));
        problems.0.extend(find_unknown_fields(&value));
        if !problems.0.is_empty() {
            return Err(ParseFleetError::Values(problems.0));
        }
        let document: FleetDocument = serde_path_to_error::deserialize(value)
            .map_err(|error| malformed(format!("`{}`: {}", error.path(), error.inner())))?;
        let fleet = check_document(document, &mut problems);
        fleet.filter(|_| problems.0.is_empty()).ok_or(ParseFleetError::Values(problems.0))
    }
}

/// Why the text of a `fleet.yaml` cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParseFleetError {
    Malformed(String),
    Values(Vec<String>),
}

/// `None` if a required value is invalid.
fn check_document(document: FleetDocument, problems: &mut Problems) -> Option<Fleet> {
    let FleetDocument { api_version, kind, metadata, defaults, clusters, applications, rollout } =
        document;
    problems.require(
        "apiVersion",
        api_version == API_VERSION,
        format_args!("is not `{API_VERSION}`"),
    );
    problems.require("kind", kind == KIND, format_args!("is not `{KIND}`"));
    problems.require("clusters", !clusters.is_empty(), "is empty");
    problems.require("applications", !applications.is_empty(), "is empty");
    let name = problems.parse::<FleetLabel>("metadata.name", &metadata.name);
    problems.reject_duplicates("clusters", clusters.iter().map(|it| it.name.as_str()));
    problems.reject_duplicates("clusters[].id", clusters.iter().map(|it| it.id.as_str()));
    problems.reject_duplicates("applications", applications.iter().map(|it| it.name.as_str()));
    let clusters = clusters.into_iter().enumerate();
    let clusters: Vec<_> = clusters
        .filter_map(|(index, it)| it.check(&defaults, &format!("clusters[{index}]"), problems))
        .collect();
    let applications = applications.into_iter().enumerate();
    let applications: Vec<_> = applications
        .filter_map(|(index, it)| it.check(&format!("applications[{index}]"), problems))
        .collect();
    problems.reject_duplicates("rollout.waves", rollout.waves.iter().map(|it| it.name.as_str()));
    let waves = rollout.waves.into_iter().enumerate();
    let waves: Vec<_> = waves
        .filter_map(|(index, it)| it.check(&format!("rollout.waves[{index}]"), problems))
        .collect();
    let fleet = Fleet { name: name?, clusters, applications, waves };
    check_identities(&fleet, problems);
    check_waves(&fleet, problems);
    check_selectors(&fleet, problems);
    check_service_accounts(&fleet, problems);
    Some(fleet)
}

impl ClusterEntry {
    fn check(
        self,
        defaults: &ClusterDefaults,
        path: &str,
        problems: &mut Problems,
    ) -> Option<FleetCluster> {
        let Self { name, id, labels, own } = self;
        let name = problems.parse(&format!("{path}.name"), &name);
        let id = problems.parse_id(&format!("{path}.id"), &id, ManagedClusterBody::RESOURCE_TYPE);
        let is_reserved = labels.contains_key(NAME_LABEL);
        problems.require(
            &format!("{path}.labels"),
            !is_reserved,
            "contains `name`, which is the label of the cluster's name",
        );
        let subscription =
            own.identity_subscription.as_ref().or(defaults.identity_subscription.as_ref());
        let subscription = match subscription {
            Some(text) => problems.parse(&format!("{path}.identitySubscription"), text),
            None => id.as_ref().map(|(_, subscription)| subscription.clone()),
        };
        let group_path = format!("{path}.identityResourceGroup");
        let group =
            own.identity_resource_group.or_else(|| defaults.identity_resource_group.clone());
        let group = group.unwrap_or_default();
        if group.is_empty() {
            problems.add(&group_path, "is missing, also in `defaults`");
        } else {
            problems.check_name(&group_path, RESOURCE_GROUP, &group);
        }
        let location = own.location.or_else(|| defaults.location.clone());
        let tags = own.tags.or_else(|| defaults.tags.clone()).unwrap_or_default();
        let is_reserved = tags.keys().any(|it| it.to_ascii_lowercase().starts_with("lanyard-"));
        problems.require(
            &format!("{path}.tags"),
            !is_reserved,
            "contains a tag that begins with `lanyard-`; lanyard sets those",
        );
        let identities =
            IdentityPlace { subscription: subscription?, resource_group: group, location, tags };
        let oidc_issuer = own.oidc_issuer.or(defaults.oidc_issuer).unwrap_or_default();
        let (id, _) = id?;
        Some(FleetCluster { name: name?, id, labels, identities, oidc_issuer })
    }
}

impl ApplicationEntry {
    fn check(self, path: &str, problems: &mut Problems) -> Option<Application> {
        let name: Option<FleetLabel> = problems.parse(&format!("{path}.name"), &self.name);
        let namespace = problems.parse(&format!("{path}.namespace"), &self.namespace);
        let account = self.service_account.as_ref().unwrap_or(&self.name);
        let account_path = format!("{path}.serviceAccount");
        // The default is the name, whose problems are reported once.
        let service_account = if self.service_account.is_some() {
            problems.parse(&account_path, account)
        } else {
            name.clone()
        };
        let audience = self.audience.unwrap_or_else(|| DEFAULT_AUDIENCE.to_owned());
        problems.require(&format!("{path}.audience"), !audience.trim().is_empty(), "is empty");
        let secrets = check_secrets(self.key_vault, &format!("{path}.keyVault"), problems);
        let overlays = self.overlays.into_iter().enumerate().map(|(index, overlay)| {
            let path = format!("{path}.overlays[{index}]");
            let labels = overlay.match_labels;
            problems.require(&format!("{path}.matchLabels"), !labels.is_empty(), "is empty");
            let secrets = check_secrets(overlay.key_vault, &format!("{path}.keyVault"), problems);
            Overlay { match_labels: labels, secrets }
        });
        let overlays = overlays.collect();
        let identity_name = self.identity_name.unwrap_or_else(|| DEFAULT_IDENTITY_NAME.to_owned());
        Some(Application {
            name: name?,
            namespace: namespace?,
            service_account: service_account?,
            audience,
            identity_name,
            secrets,
            overlays,
        })
    }
}

/// `None` without access to secrets, and for an invalid one, which is reported as a problem.
fn check_secrets(
    entry: Option<KeyVaultEntry>,
    path: &str,
    problems: &mut Problems,
) -> Option<VaultSecrets> {
    let KeyVaultEntry { id, secrets } = entry?;
    let secrets_path = format!("{path}.secrets");
    problems.require(&secrets_path, !secrets.is_empty(), "is empty");
    problems.reject_duplicates(&secrets_path, secrets.iter().map(String::as_str));
    let vault = problems.parse_id(&format!("{path}.id"), &id, VaultBody::RESOURCE_TYPE);
    let names = secrets.iter().enumerate();
    let names: Vec<_> = names
        .map(|(index, name)| problems.parse(&format!("{secrets_path}[{index}]"), name))
        .collect();
    let (vault, subscription) = vault?;
    let names = names.into_iter().collect::<Option<_>>()?;
    Some(VaultSecrets { vault, subscription, names })
}

impl WaveEntry {
    fn check(self, path: &str, problems: &mut Problems) -> Option<WaveRule> {
        let name = problems.parse(&format!("{path}.name"), &self.name);
        let concurrency = format!("{path}.maxConcurrency");
        let max_concurrency = self.max_concurrency.map_or(Some(ClusterShare::Count(1)), |share| {
            let share = share.check(&concurrency, problems)?;
            let is_none = matches!(share, ClusterShare::Count(0) | ClusterShare::Percentage(0));
            problems.require(
                &concurrency,
                !is_none,
                "is 0; at least one cluster is changed at a time",
            );
            Some(share)
        });
        let failures = format!("{path}.maxAllowedFailures");
        let max_allowed_failures = self
            .max_allowed_failures
            .map_or(Some(ClusterShare::Count(0)), |share| share.check(&failures, problems));
        let pause = self.pause_after.as_deref().unwrap_or("0");
        let pause_after = parse_go_duration(pause);
        problems.require(
            &format!("{path}.pauseAfter"),
            pause_after.is_some(),
            format_args!("is `{pause}`, not a duration such as `10m`"),
        );
        Some(WaveRule {
            name: name?,
            match_labels: self.match_labels,
            order_by: self.order_by,
            max_concurrency: max_concurrency?,
            max_allowed_failures: max_allowed_failures?,
            pause_after: pause_after?,
        })
    }
}

impl ShareEntry {
    fn check(self, path: &str, problems: &mut Problems) -> Option<ClusterShare> {
        match self {
            Self::Count(count) => Some(ClusterShare::Count(count)),
            Self::Percentage(text) => {
                let percent = text.strip_suffix('%').and_then(|it| it.parse().ok());
                let percent = percent.filter(|it| (0..=100).contains(it));
                let problem =
                    format!("is `{text}`, not a number or a percentage from `0%` to `100%`");
                problems.require(path, percent.is_some(), problem);
                percent.map(ClusterShare::Percentage)
            }
        }
    }
}

/// Checks that each cluster is in a wave, if there are waves.
fn check_waves(fleet: &Fleet, problems: &mut Problems) {
    if fleet.waves.is_empty() {
        return;
    }
    for cluster in fleet.clusters.iter().filter(|it| fleet.wave_of(it).is_none()) {
        let name = &cluster.name;
        let problem = format!(
            "have no wave for `{name}`; a last wave without `matchLabels` has all other clusters"
        );
        problems.add("rollout.waves", problem);
    }
}

/// Checks that the labels of each wave and of each overlay select a cluster: a misspelt one would give clusters other
/// secrets than the file says.
fn check_selectors(fleet: &Fleet, problems: &mut Problems) {
    let waves = fleet.waves.iter().enumerate();
    let waves = waves.map(|(index, it)| (format!("rollout.waves[{index}]"), &it.match_labels));
    let overlays = fleet.applications.iter().enumerate().flat_map(|(application, it)| {
        it.overlays.iter().enumerate().map(move |(index, overlay)| {
            (format!("applications[{application}].overlays[{index}]"), &overlay.match_labels)
        })
    });
    for (path, labels) in waves.chain(overlays) {
        let selects = fleet.clusters.iter().any(|it| it.has_labels(labels));
        problems.require(&format!("{path}.matchLabels"), selects, "selects no cluster");
    }
}

/// Checks that no two applications have the same ServiceAccount, whose annotation names one identity.
fn check_service_accounts(fleet: &Fleet, problems: &mut Problems) {
    let mut subjects = BTreeSet::new();
    for (index, application) in fleet.applications.iter().enumerate() {
        let is_new = subjects.insert(application.subject());
        let path = format!("applications[{index}].serviceAccount");
        problems.require(&path, is_new, "is that of another application in the same namespace");
    }
}

/// Checks the names of all identities, which contain names of the file: by Azure's rules, and that no two are equal.
fn check_identities(fleet: &Fleet, problems: &mut Problems) {
    let mut owners = BTreeMap::new();
    for cluster in &fleet.clusters {
        for (index, application) in fleet.applications.iter().enumerate() {
            let path = format!("applications[{index}].identityName");
            let name = application.identity_name(&fleet.name, &cluster.name);
            problems.check_name(&path, MANAGED_IDENTITY, &name);
            let place = &cluster.identities;
            let id = [place.subscription.as_str(), &place.resource_group, &name];
            let id = id.join("/").to_ascii_lowercase();
            let owner = format!("`{}` on `{}`", application.name, cluster.name);
            if let Some(other) = owners.insert(id, owner.clone()) {
                let problem = format!("gives {other} and {owner} the same identity `{name}`");
                problems.add(&path, problem);
            }
        }
    }
}

/// The problems with the values of fields.
#[derive(Debug, Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, path: &str, problem: impl std::fmt::Display) {
        let problem = format!("`{path}` {problem}");
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    fn require(&mut self, path: &str, holds: bool, problem: impl std::fmt::Display) {
        if !holds {
            self.add(path, problem);
        }
    }

    fn parse<T: FromStr<Err: std::error::Error>>(&mut self, path: &str, text: &str) -> Option<T> {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(path, format_args!("is invalid: {}", format_error_chain(&error)));
                None
            }
        }
    }

    /// Parses the id of a resource with this type, and its subscription.
    fn parse_id(
        &mut self,
        path: &str,
        text: &str,
        resource_type: &str,
    ) -> Option<(ArmResourceId, SubscriptionId)> {
        let id: ArmResourceId = self.parse(path, text)?;
        let has_type = id.has_type(resource_type);
        self.require(
            path,
            has_type,
            format_args!("is not the id of a resource of the type `{resource_type}`"),
        );
        let subscription = self.parse(path, id.subscription())?;
        has_type.then_some((id, subscription))
    }

    fn check_name(&mut self, path: &str, rule: AzureNameRule, name: &str) {
        if let Err(error) = rule.check(name) {
            self.add(path, format_args!("is invalid: {error}"));
        }
    }

    fn reject_duplicates<'a>(&mut self, path: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.to_ascii_lowercase()) {
                self.add(path, format_args!("contains `{name}` twice"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
