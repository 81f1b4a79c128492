//! Converts the flags into settings, and reports all problems together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lanyard_kms::{LIVE_PATH, VaultKind};
use lanyard_telemetry::ListenAddress;
use lanyard_vocabulary::{KeyVersion, ParseIdentifierError, SecretName, VaultName};

use super::flags::{IgnoredKmsArgs, KmsArgs, KmsHttpArgs, KmsKeyArgs};
use crate::exit::CommandError;

/// The settings of the KMS plugin.
#[derive(Debug)]
pub(super) struct KmsSettings {
    pub(super) vault_kind: VaultKind,
    pub(super) vault: VaultName,
    pub(super) key: SecretName,
    pub(super) version: KeyVersion,
    pub(super) socket: PathBuf,
    pub(super) metrics_address: ListenAddress,
    pub(super) health_address: ListenAddress,
}

impl KmsSettings {
    /// Validates the flags and converts them into settings.
    pub(super) fn resolve(args: &KmsArgs) -> Result<Self, CommandError> {
        let mut problems = Vec::new();
        let KmsKeyArgs { keyvault_name, key_name, key_version, managed_hsm, .. } = &args.key;
        let vault = parse_required_name("--keyvault-name", keyvault_name.as_deref(), &mut problems);
        let key = parse_required_name("--key-name", key_name.as_deref(), &mut problems);
        let version = parse_required_name("--key-version", key_version.as_deref(), &mut problems);
        let socket = parse_socket_path(&args.socket.listen_addr, &mut problems);
        let metrics = parse_metrics_address(&args.http.metrics_addr, &mut problems);
        check_health_path(&args.http, &mut problems);
        check_ignored_flags(&args.ignored, &mut problems);
        let kind = if managed_hsm.0 { VaultKind::ManagedHsm } else { VaultKind::Vault };
        let health = match (args.http.healthz_port, args.http.healthz_addr) {
            (0, _) => ListenAddress::Off,
            (port, None) => ListenAddress::AllInterfaces(port),
            (port, Some(ip)) => ListenAddress::Single(SocketAddr::new(ip, port)),
        };
        match (vault, key, version, socket, metrics) {
            (Some(vault), Some(key), Some(version), Some(socket), Some(metrics))
                if problems.is_empty() =>
            {
                Ok(Self {
                    vault_kind: kind,
                    vault,
                    key,
                    version,
                    socket,
                    metrics_address: metrics,
                    health_address: health,
                })
            }
            _ => Err(CommandError::invalid_input(problems.join("; "))
                .with_hint("`lanyard kms --help` lists every flag with its default")),
        }
    }
}

/// Parses a name of the key, after removing the blanks and quotes that manifests put around it.
fn parse_required_name<T>(flag: &str, given: Option<&str>, problems: &mut Vec<String>) -> Option<T>
where
    T: FromStr<Err = ParseIdentifierError>,
{
    let text = trim_quotes(given.unwrap_or_default());
    if text.is_empty() {
        problems.push(format!(
            "{flag} is missing: key vault name, key name and key version are required"
        ));
        return None;
    }
    text.parse().map_err(|error| problems.push(format!("{flag}: {error}"))).ok()
}

fn trim_quotes(text: &str) -> &str {
    text.trim().trim_matches('"').trim()
}

/// Parses the path of a `unix://` address. Abstract socket names, which the API server also supports, are
/// refused: the plugin could not restrict access to them.
fn parse_socket_path(text: &str, problems: &mut Vec<String>) -> Option<PathBuf> {
    let path = text.strip_prefix("unix://").filter(|path| !path.is_empty());
    let is_file =
        |path: &&str| path.starts_with('/') && !path.starts_with("/@") && !path.ends_with('/');
    let found = path.filter(is_file).map(|path| Path::new(path).to_owned());
    if found.is_none() {
        problems.push(format!("invalid endpoint: {text}: give unix:// and an absolute path"));
    }
    found
}

/// Parses the metrics address. The upstream plugins accept only a port.
fn parse_metrics_address(text: &str, problems: &mut Vec<String>) -> Option<ListenAddress> {
    let text = text.trim();
    let port = text.parse::<u16>().ok().filter(|port| *port != 0);
    if let Some(port) = port {
        return Some(ListenAddress::AllInterfaces(port));
    }
    text.parse()
        .map_err(|error| problems.push(format!("--metrics-addr: {error}, or a port alone")))
        .ok()
}

fn check_health_path(args: &KmsHttpArgs, problems: &mut Vec<String>) {
    let path = &args.healthz_path;
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "/-_.".contains(it);
    if !path.starts_with('/') || path == LIVE_PATH || !path.chars().all(is_allowed) {
        problems.push(format!(
            "--healthz-path `{path}` is not a valid path, or another endpoint uses it"
        ));
    }
}

fn check_ignored_flags(args: &IgnoredKmsArgs, problems: &mut Vec<String>) {
    if !args.metrics_backend.eq_ignore_ascii_case("prometheus") {
        problems.push(format!("--metrics-backend `{}`: only prometheus is", args.metrics_backend));
    }
    if args.proxy_mode.0 {
        problems.push(
            "--proxy-mode would send tokens in the clear and is not supported: set HTTPS_PROXY"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, CliCommand};
    use crate::commands::kms::normalize_single_dash_flags;

    fn resolve_line(line: &str) -> Result<KmsSettings, String> {
        let line = format!("lanyard kms {line}");
        let arguments = line.split_whitespace().map(std::ffi::OsString::from);
        let cli = Cli::try_parse_from(normalize_single_dash_flags(arguments))
            .map_err(|error| error.to_string())?;
        let CliCommand::Kms(args) = cli.command else { panic!("{line}") };
        KmsSettings::resolve(&args.run).map_err(|error| error.to_string())
    }

    const KEY_FLAGS: &str = "--keyvault-name=kv1 --key-name=etcd --key-version=ABCD";

    #[test]
    fn arguments_of_hypershift_kms_containers_are_accepted() {
        let settings = resolve_line(&format!(
            "{KEY_FLAGS} --listen-addr=unix:///opt/azurekmsactive.socket --healthz-port=8787 \
             --metrics-addr=8095 --healthz-path=/healthz \
             --config-file-path=/etc/kubernetes/azure.json -v=1 --managed-hsm"
        ))
        .unwrap();
        assert_eq!(settings.socket, Path::new("/opt/azurekmsactive.socket"));
        assert_eq!(settings.metrics_address, ListenAddress::AllInterfaces(8095));
        assert_eq!(settings.health_address, ListenAddress::AllInterfaces(8787));
        assert_eq!(settings.vault_kind, VaultKind::ManagedHsm);
    }

    #[test]
    fn single_dash_repeated_flags_and_quotes_are_parsed_like_go() {
        let settings = resolve_line(
            "-keyvault-name=\"kv1\" -key-name other -key-name \"etcd\" -key-version=ABCD -v 6 \
             -managed-hsm=false -log-format-json=true -configFilePath=/x -metrics-backend=Prometheus",
        )
        .unwrap();
        assert_eq!((settings.vault.as_str(), settings.key.as_str()), ("kv1", "etcd"));
        assert_eq!(settings.vault_kind, VaultKind::Vault);
    }

    #[test]
    fn all_flag_problems_are_reported_together() {
        let message = resolve_line(
            "--key-name=a_b --key-version= --listen-addr=tcp://1 --metrics-addr=x \
             --healthz-path=/livez --proxy-mode --metrics-backend=stackdriver",
        )
        .unwrap_err();
        for part in [
            "--keyvault-name is missing",
            "--key-name: `a_b` is not",
            "--key-version is missing: key vault name, key name and key version are required",
            "invalid endpoint: tcp://1",
            "--metrics-addr: `x`",
            "--healthz-path `/livez`",
            "--proxy-mode would send",
            "--metrics-backend `stackdriver`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn socket_addresses_without_a_file_are_refused() {
        for address in ["unix://", "unix:///", "unix:///@abstract", "unix://opt/x", "/opt/x", ""] {
            let message =
                resolve_line(&format!("{KEY_FLAGS} --listen-addr={address}")).unwrap_err();
            assert!(message.contains(&format!("invalid endpoint: {address}")), "{message}");
        }
        assert!(resolve_line(&format!("{KEY_FLAGS} -v=256")).is_err());
        assert!(resolve_line(&format!("{KEY_FLAGS} --managed-hsm=maybe")).is_err());
        assert_eq!(
            resolve_line(&format!("{KEY_FLAGS} --metrics-addr=0 --healthz-port=0"))
                .unwrap()
                .metrics_address,
            ListenAddress::Off
        );
    }
}
