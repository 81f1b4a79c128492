//! From flags to settings. What is wrong with them is told at once.

use std::sync::Arc;
use std::time::Duration;

use lanyard_desired::objects::VolumeRefresh;
use lanyard_operator::{LeaseSettings, OperatorSettings, Role};

use super::flags::{OperatorArgs, ReplicaArgs, RoleName};
use crate::exit::CommandError;

/// The settings of these flags; `chance` tells this process from all others of its name.
pub(super) fn resolve(args: &OperatorArgs, chance: u32) -> Result<OperatorSettings, CommandError> {
    let templates = args.workloads.load()?;
    Ok(OperatorSettings {
        role: match args.role {
            RoleName::All => Role::All,
            RoleName::IdentityOnly => Role::IdentityOnly,
        },
        workers: args.workers.into(),
        leases: if args.dry_run { None } else { leases(&args.replicas, chance)? },
        vault_reader: args.cluster.vault_reader,
        managed_service: args.cluster.managed_service.clone().filter(|name| !name.is_empty()),
        templates: Arc::new(templates),
        refresh: if args.cluster.rotation.0 {
            VolumeRefresh::Polled
        } else {
            VolumeRefresh::AtMount
        },
        policy: args.reach.policy(),
        instance: args.replicas.pod_name.clone(),
    })
}

fn leases(args: &ReplicaArgs, chance: u32) -> Result<Option<LeaseSettings>, CommandError> {
    if !args.leader_elect.0 {
        return if args.shards == 1 {
            Ok(None)
        } else {
            Err(CommandError::invalid("--shards divides the clusters among replicas, and with --leader-elect=false there is one")
                .hint("leave --shards out, or let replicas share by leases"))
        };
    }
    let mut problems = Vec::new();
    let namespace = args.lease_namespace.clone().filter(|name| !name.is_empty());
    if namespace.is_none() {
        problems.push("--lease-namespace is missing: leases are in a namespace".to_owned());
    }
    let duration = args.lease_duration.0;
    if duration < SHORTEST_LEASE {
        let shortest = SHORTEST_LEASE.as_secs();
        problems.push(format!("--lease-duration: give {shortest} s or more"));
    }
    if !is_name(&args.lease_name) {
        problems.push(format!(
            "--lease-name: `{}`: give lower-case letters, digits, `-` and `.`, at most {LONGEST_LEASE_NAME}, \
             with a letter or digit at both ends of each part",
            args.lease_name
        ));
    }
    if !problems.is_empty() {
        return Err(CommandError::invalid(problems.join("; "))
            .hint("a single operator outside of a cluster needs none: --leader-elect=false"));
    }
    Ok(Some(LeaseSettings {
        namespace: namespace.unwrap_or_default(),
        name: args.lease_name.clone(),
        identity: identity(&args.pod_name, chance),
        shards: args.shards,
        duration,
    }))
}

/// Part of a name, with no dot in it: what is no letter, digit or `-` is left out.
fn identity(pod_name: &str, chance: u32) -> String {
    let named = |it: &char| it.is_ascii_lowercase() || it.is_ascii_digit() || *it == '-';
    let kept: String = pod_name.chars().filter(named).take(LONGEST_IDENTITY).collect();
    let kept = kept.trim_matches('-');
    if kept.is_empty() { format!("operator-{chance:08x}") } else { format!("{kept}-{chance:08x}") }
}

fn is_name(text: &str) -> bool {
    let named = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(named)
            && label.ends_with(named)
            && label.chars().all(|it| named(it) || it == '-')
    };
    text.len() <= LONGEST_LEASE_NAME && text.split('.').all(is_label)
}

/// Less leaves no room for a renewal that fails once.
const SHORTEST_LEASE: Duration = Duration::from_secs(6);
/// With a number or an identity behind it it is still a name, and by itself the value of a label.
const LONGEST_LEASE_NAME: usize = 63;
const LONGEST_IDENTITY: usize = 150;
