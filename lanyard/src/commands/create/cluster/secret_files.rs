//! The files whose content becomes Secrets, and generated keys.

use std::path::{Path, PathBuf};

use azure_core::credentials::Secret;
use lanyard_federation::{SigningKey, SigningKeySize};
use lanyard_infra::manifests::{SecretInputs, SshKeyInput, generate_encryption_key};

use crate::commands::go_bool::GoBool;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};

/// The flags of files that contain secrets.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Secrets")]
pub(super) struct SecretFlags {
    /// The pull secret of the release image
    #[arg(long, value_name = "FILE")]
    pull_secret: PathBuf,
    /// The public SSH key of the nodes
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    /// Generate an SSH key pair for the nodes
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    generate_ssh: GoBool,
    /// The private key that signs service account tokens, of the token issuer
    #[arg(long, requires = "oidc_issuer_url", value_name = "FILE")]
    sa_token_issuer_private_key_path: Option<PathBuf>,
}

impl SecretFlags {
    pub(super) const fn has_signing_key(&self) -> bool {
        self.sa_token_issuer_private_key_path.is_some()
    }

    /// Reads and checks the files, and generates the missing keys.
    pub(super) fn read(&self) -> Result<SecretInputs, CommandError> {
        let signing_key = match &self.sa_token_issuer_private_key_path {
            None => None,
            Some(path) => Some(read_signing_key(path)?),
        };
        let encryption_key = generate_encryption_key()
            .or_unavailable("the key that encrypts secrets cannot be generated")?;
        let pull_secret = read_pull_secret(&self.pull_secret)?;
        Ok(SecretInputs { pull_secret, ssh_key: self.ssh_key()?, signing_key, encryption_key })
    }

    fn ssh_key(&self) -> Result<Option<SshKeyInput>, CommandError> {
        match (&self.ssh_key, self.generate_ssh.0) {
            (Some(_), true) => {
                Err(CommandError::invalid_input("--generate-ssh excludes --ssh-key"))
            }
            (Some(path), false) => read_ssh_key(path).map(Some),
            (None, true) => generate_ssh_key().map(Some),
            (None, false) => Ok(None),
        }
    }
}

fn read_text(flag: &str, path: &Path) -> Result<String, CommandError> {
    std::fs::read_to_string(path)
        .or_invalid(format_args!("{flag}: {} cannot be read", path.display()))
}

/// Checks the form only; the error does not quote the file.
fn read_pull_secret(path: &Path) -> Result<Secret, CommandError> {
    let text = read_text("--pull-secret", path)?;
    let parsed: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    if parsed.is_some_and(|it| it.get("auths").is_some_and(serde_json::Value::is_object)) {
        return Ok(Secret::new(text));
    }
    let shown = path.display();
    Err(CommandError::invalid_input(format!("--pull-secret: {shown} is not a pull secret"))
        .with_hint("give a JSON file with `auths`, as from console.redhat.com/openshift"))
}

fn read_ssh_key(path: &Path) -> Result<SshKeyInput, CommandError> {
    let public_key = read_text("--ssh-key", path)?;
    if public_key.contains("PRIVATE KEY") {
        let shown = path.display();
        return Err(CommandError::invalid_input(format!("--ssh-key: {shown} is a private key"))
            .with_hint("give the public key, usually the file with the suffix .pub"));
    }
    Ok(SshKeyInput { public_key, private_key: None })
}

fn read_signing_key(path: &Path) -> Result<Secret, CommandError> {
    let flag = "--sa-token-issuer-private-key-path";
    let text = read_text(flag, path)?;
    SigningKey::parse_pem(&text)
        .context(format_args!("{flag}: {}", path.display()))
        .mark_invalid()?;
    Ok(Secret::new(text))
}

/// An RSA key pair, as HyperShift generates it.
fn generate_ssh_key() -> Result<SshKeyInput, CommandError> {
    let key = SigningKey::generate(SigningKeySize::Rsa4096)
        .context("--generate-ssh: no key pair could be generated")?;
    let private_key = Some(Secret::new(key.to_pem().to_string()));
    Ok(SshKeyInput { public_key: key.public_key().to_openssh(), private_key })
}
