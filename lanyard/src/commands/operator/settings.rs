//! Converts the flags into settings, and reports all problems together.

use std::sync::Arc;
use std::time::Duration;

use lanyard_desired::objects::VolumeRefresh;
use lanyard_operator::{LeaseSettings, OperatorRole, OperatorSettings};

use super::flags::{OperatorArgs, OperatorRoleArg, ReplicaArgs};
use crate::exit::CommandError;

/// Validates the flags and converts them into settings. `chance` is a random number that makes the replica's
/// identity unique.
pub(super) fn resolve_settings(
    args: &OperatorArgs,
    chance: u32,
) -> Result<OperatorSettings, CommandError> {
    let templates = args.workloads.load_templates()?;
    Ok(OperatorSettings {
        role: match args.role {
            OperatorRoleArg::All => OperatorRole::All,
            OperatorRoleArg::IdentityOnly => OperatorRole::IdentityOnly,
        },
        workers: args.workers.into(),
        leases: if args.dry_run { None } else { lease_settings(&args.replicas, chance)? },
        vault_reader: args.management_cluster.vault_reader,
        managed_service: args
            .management_cluster
            .managed_service
            .clone()
            .filter(|name| !name.is_empty()),
        templates: Arc::new(templates),
        volume_refresh: if args.management_cluster.rotation.0 {
            VolumeRefresh::Polled
        } else {
            VolumeRefresh::AtMount
        },
        policy: args.rotation_timing.forecast_policy(),
        reporting_instance: args.replicas.pod_name.clone(),
        service_account: args.management_cluster.service_account.clone(),
    })
}

fn lease_settings(args: &ReplicaArgs, chance: u32) -> Result<Option<LeaseSettings>, CommandError> {
    if !args.leader_elect.0 {
        return if args.shards == 1 {
            Ok(None)
        } else {
            Err(CommandError::invalid_input("--shards divides the clusters among replicas, and with --leader-elect=false there is one")
                .with_hint("leave --shards out, or let replicas share by leases"))
        };
    }
    let mut problems = Vec::new();
    let namespace = args.lease_namespace.clone().filter(|name| !name.is_empty());
    if namespace.is_none() {
        problems.push("--lease-namespace is missing: leases are in a namespace".to_owned());
    }
    let duration = args.lease_duration.0;
    if duration < MIN_LEASE_DURATION {
        let shortest = MIN_LEASE_DURATION.as_secs();
        problems.push(format!("--lease-duration: give {shortest} s or more"));
    }
    // A Lease holds whole seconds: other replicas would take the shard before this one gives it up.
    if duration.subsec_nanos() != 0 {
        problems.push("--lease-duration: give whole seconds".to_owned());
    }
    if !is_dns_subdomain(&args.lease_name) {
        problems.push(format!(
            "--lease-name: `{}`: give lower-case letters, digits, `-` and `.`, at most {MAX_LEASE_NAME_LENGTH}, \
             with a letter or digit at both ends of each part",
            args.lease_name
        ));
    }
    if !problems.is_empty() {
        return Err(CommandError::invalid_input(problems.join("; "))
            .with_hint("a single operator outside of a cluster needs none: --leader-elect=false"));
    }
    Ok(Some(LeaseSettings {
        namespace: namespace.unwrap_or_default(),
        name: args.lease_name.clone(),
        identity: lease_identity(&args.pod_name, chance),
        shards: args.shards,
        duration,
    }))
}

/// The lease identity of this replica: the pod name without characters other than letters, digits and `-`,
/// and a random suffix. It contains no dot.
fn lease_identity(pod_name: &str, chance: u32) -> String {
    let is_allowed = |it: &char| it.is_ascii_lowercase() || it.is_ascii_digit() || *it == '-';
    let name: String = pod_name.chars().filter(is_allowed).take(MAX_IDENTITY_LENGTH).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { format!("operator-{chance:08x}") } else { format!("{name}-{chance:08x}") }
}

fn is_dns_subdomain(text: &str) -> bool {
    let is_allowed = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_allowed)
            && label.ends_with(is_allowed)
            && label.chars().all(|it| is_allowed(it) || it == '-')
    };
    text.len() <= MAX_LEASE_NAME_LENGTH && text.split('.').all(is_label)
}

/// A shorter duration leaves no time to retry a failed renewal.
const MIN_LEASE_DURATION: Duration = Duration::from_secs(6);
/// A lease name with a shard number or identity appended is still a valid name, and the name alone is a valid
/// label value.
const MAX_LEASE_NAME_LENGTH: usize = 63;
const MAX_IDENTITY_LENGTH: usize = 150;
