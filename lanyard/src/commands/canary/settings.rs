//! Converts the flags of a canary into settings, and reports all problems together.

use std::time::Duration;

use lanyard_canary::{
    CanarySettings, CredentialFileLocation, FailureThreshold, GrantedCall, KeyUrl,
    NetworkProbeTarget, ProbeSettings,
};
use lanyard_vocabulary::cloud::CloudEndpoints;

use super::{Args, CanaryProbeArg, CanaryProbeArgs, CredentialFileArgs};
use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// Validates the flags, and the environment variable that they name, and converts them into settings.
pub(super) fn resolve_settings(args: &Args) -> Result<CanarySettings, CommandError> {
    let Some(endpoints) = args.cloud.endpoints() else {
        let message = format!("--cloud: {} has no fixed endpoints", args.cloud);
        return Err(CommandError::invalid_input(message).with_hint("give another cloud"));
    };
    let mut problems = Vec::new();
    let call = args.call.as_deref().and_then(|line| {
        let call = GrantedCall::parse(line, endpoints);
        call.map_err(|error| problems.push(format!("--call: {error}"))).ok()
    });
    let probes = probe_settings(&args.probes, endpoints, &mut problems);
    for (flag, duration) in [
        ("--interval", args.interval.0),
        ("--token-interval", args.token_interval.0),
        ("--probe-interval", args.probes.probe_interval.0),
    ] {
        if duration < MIN_INTERVAL {
            problems.push(format!("{flag}: give {} s or more", MIN_INTERVAL.as_secs()));
        }
    }
    if !problems.is_empty() {
        let hint = "see `lanyard canary --help`";
        return Err(CommandError::invalid_input(problems.join("; ")).with_hint(hint));
    }
    Ok(CanarySettings {
        component: args.component,
        endpoints,
        credential_location: credential_place(&args.credential_source),
        call,
        probes,
        interval: args.interval.0,
        token_interval: args.token_interval.0,
        probe_interval: args.probes.probe_interval.0,
        failure_threshold: FailureThreshold::HOPS,
    })
}

/// Limits the request rate of canaries.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Exactly one of the flags is set, which clap enforces.
fn credential_place(args: &CredentialFileArgs) -> CredentialFileLocation {
    if let Some(name) = &args.credential_file_from_env {
        let value = ProcessEnvironment::read_variable(name);
        return CredentialFileLocation::Variable { name: name.clone(), value };
    }
    match &args.cloud_config {
        Some(path) => CredentialFileLocation::CloudConfig(path.clone()),
        None => CredentialFileLocation::File(args.credential_file.clone().unwrap_or_default()),
    }
}

fn probe_settings(
    args: &CanaryProbeArgs,
    endpoints: &CloudEndpoints,
    problems: &mut Vec<String>,
) -> Vec<ProbeSettings> {
    let mut probes = Vec::new();
    for name in [CanaryProbeArg::Network, CanaryProbeArg::Encryption] {
        if !args.probe.contains(&name) {
            continue;
        }
        probes.extend(match name {
            CanaryProbeArg::Network => network_probe(args, problems),
            CanaryProbeArg::Encryption => encryption_probe(args, endpoints, problems),
        });
    }
    probes
}

fn network_probe(args: &CanaryProbeArgs, problems: &mut Vec<String>) -> Option<ProbeSettings> {
    let mut wanted = |flag: &str, id: &Option<_>| {
        if id.is_none() {
            problems.push(format!("--probe network: give {flag}"));
        }
        id.clone()
    };
    let vnet = wanted("--vnet-id", &args.vnet_id);
    let security_group = wanted("--security-group-id", &args.security_group_id);
    let resource_group = wanted("--resource-group-id", &args.resource_group_id);
    Some(ProbeSettings::Network(NetworkProbeTarget {
        vnet: vnet?,
        security_group: security_group?,
        resource_group: resource_group?,
    }))
}

fn encryption_probe(
    args: &CanaryProbeArgs,
    endpoints: &CloudEndpoints,
    problems: &mut Vec<String>,
) -> Option<ProbeSettings> {
    let Some(text) = &args.key_url else {
        problems.push("--probe encryption: give --key-url".to_owned());
        return None;
    };
    let key = KeyUrl::parse(text, endpoints);
    let key = key.map_err(|error| problems.push(format!("--key-url: {error}"))).ok()?;
    let credential_file = args.encryption_credential_file.clone();
    Some(ProbeSettings::Encryption { key, credential_file })
}
