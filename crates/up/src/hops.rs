//! The hops of one component, each a call of the crate that owns it.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_api::ProviderParameters;
use lanyard_azure::{ArmClient, CallError, Caller};
use lanyard_credential::{ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError};
use lanyard_desired::proof::{Expected, ProofCall, ProofTarget};
use lanyard_keyvault::{
    DecodedFiles, FetchedObject, FileOptions, KeyVault, decode_files, encoding, fetch_objects,
};
use lanyard_node::{FileEntry, FilePath, Published};
use lanyard_vocabulary::{Component, Hop};

use crate::azure_end::AzureEnd;
use crate::mounts::Mounted;
use crate::report::Failure;
use crate::roadbed::Roadbed;
use crate::walk::{Found, Stopped, Walk};

/// What a component has at the end of its way.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) parameters: ProviderParameters,
    pub(crate) volumes: Vec<Mounted>,
    pub(crate) credential: Option<Arc<ReloadingCertificateCredential>>,
}

pub(crate) type HopResult<T> = Result<Found<T>, Failure>;

/// Walks all hops; what was mounted is kept even where a later hop fails.
pub(crate) async fn walk_component(
    bed: &Roadbed,
    component: Component,
    walk: &mut Walk,
    arrived: &mut Option<Arrived>,
) -> Result<(), Stopped> {
    walk.hop(Hop::HostedCluster, async { hosted_cluster(bed, component) }).await?;
    let parameters =
        walk.hop(Hop::SecretProviderClass, secret_provider_class(bed, component)).await?;
    walk.hop(Hop::Volume, async { volume(bed, component) }).await?;
    walk.hop(Hop::ImdsToken, imds_token(bed)).await?;
    let objects = walk.hop(Hop::VaultRead, vault_read(bed, &parameters)).await?;
    let decoded = walk.hop(Hop::Decode, async { decode(&objects) }).await?;
    let volumes = walk.hop(Hop::File, async { file(bed, component, &decoded) }).await?;
    let arrived = arrived.insert(Arrived { parameters, volumes, credential: None });
    let credential =
        walk.hop(Hop::Credential, load_credential(bed, component, &arrived.volumes)).await?;
    arrived.credential = Some(Arc::clone(&credential));
    let proofs = bed.azure.proofs(component);
    let granted = proofs.map(|proofs| &proofs.granted);
    walk.hop(Hop::EntraToken, entra_token(bed, &credential, granted)).await?;
    walk.hop(Hop::Granted, prove(&bed.azure, &credential, granted)).await?;
    let refused = proofs.map(|proofs| &proofs.refused);
    walk.hop(Hop::Refused, prove(&bed.azure, &credential, refused)).await
}

fn hosted_cluster(bed: &Roadbed, component: Component) -> HopResult<()> {
    let Some(identity) = bed.azure.cluster.identities.get(&component) else {
        let detail = format!("the HostedCluster names no identity at {}", component.field_path());
        return Err(Failure::new(detail, "name one, or switch the component off"));
    };
    let detail = format!(
        "secret `{}` in vault `{}`, {}",
        identity.secret_name, bed.azure.cluster.vault.name, identity.encoding
    );
    Ok(Found::new((), detail))
}

async fn secret_provider_class(
    bed: &Roadbed,
    component: Component,
) -> HopResult<ProviderParameters> {
    let name = component.facts().secret_provider_class;
    let namespace = &bed.desired.namespace;
    let class = bed
        .classes
        .class(namespace, name)
        .await
        .map_err(|error| Failure::of(&error, error.hint()))?;
    let parameters = class.parse_parameters().map_err(|problems| {
        Failure::of(&problems, format!("correct the parameters of {namespace}/{name}"))
    })?;
    Ok(Found::new(parameters, format!("{namespace}/{name}")))
}

fn volume(bed: &Roadbed, component: Component) -> HopResult<()> {
    let mut places = Vec::new();
    for consumer in component.consumers() {
        let told = bed.desired.consumer_path(component, consumer);
        let provided = bed.desired.volume_path(component, consumer);
        let (deployment, volume) = (consumer.deployment, consumer.volume);
        match (told, provided) {
            (Some(told), Some(provided)) if told == provided => {
                places.push(format!("{deployment} reads {told}"));
            }
            (told, provided) => {
                let absent = || "nothing".to_owned();
                let detail = format!(
                    "{deployment} is told {}, and its volume `{volume}` provides {}",
                    told.unwrap_or_else(absent),
                    provided.unwrap_or_else(absent)
                );
                return Err(Failure::new(detail, "compare the mount path with what is told"));
            }
        }
    }
    Ok(Found::new((), places.join("; ")))
}

async fn imds_token(bed: &Roadbed) -> HopResult<()> {
    let scope = bed.azure.vault_scope();
    let token = bed
        .reader
        .get_token(&[&scope], None)
        .await
        .map_err(|error| Failure::of(&error, token_hint(&error)))?;
    // The same words for all: it is one token, requested once.
    let detail = format!(
        "one token of managed identity {} for all, valid until {}",
        bed.azure.reader_client_id,
        crate::time::rfc3339(token.expires_on)
    );
    Ok(Found::new((), detail))
}

/// The next step of a credential's error, which knows it best.
fn token_hint(error: &azure_core::Error) -> String {
    TokenError::of(error)
        .and_then(TokenError::hint)
        .unwrap_or_else(|| "see the logs with --log lanyard_credential=debug".to_owned())
}

pub(crate) async fn vault_read(
    bed: &Roadbed,
    parameters: &ProviderParameters,
) -> HopResult<Vec<FetchedObject>> {
    let endpoints = bed.azure.endpoints;
    let url = KeyVault::url_of(&parameters.vault_name, endpoints);
    let objects = fetch_objects(parameters, &bed.vault).await.map_err(|error| {
        let hint = error.hint();
        Failure::of(&error, hint.unwrap_or_else(|| "see the vault's answer".to_owned()))
    })?;
    let versions: Vec<_> = objects.iter().map(|object| object.reference().to_string()).collect();
    Ok(Found::new(objects, format!("{url}: {}", versions.join(", "))))
}

pub(crate) fn decode(objects: &[FetchedObject]) -> HopResult<DecodedFiles> {
    let decoded = decode_files(objects, FileOptions::default()).map_err(|error| {
        let hint = error.hint();
        Failure::of(&error, hint.unwrap_or_else(|| "see the object in the vault".to_owned()))
    })?;
    for file in &decoded.files {
        if let Some(seems) = encoding::suspicion(file.content.expose()) {
            let detail = format!("`{}` decodes to text that still is {seems}", file.path);
            let hint = format!("declare objectEncoding {seems}, or store the value decoded");
            return Err(Failure::new(detail, hint));
        }
    }
    let files: Vec<_> = decoded
        .files
        .iter()
        .map(|file| format!("{} ({} bytes)", file.path, file.content.len()))
        .collect();
    Ok(Found::new(decoded, files.join(", ")))
}

fn file(bed: &Roadbed, component: Component, decoded: &DecodedFiles) -> HopResult<Vec<Mounted>> {
    let refuse = |error: &lanyard_node::PublishError| {
        Failure::of(error, error.hint().unwrap_or("check the directory given with --directory"))
    };
    let mut volumes = Vec::new();
    for consumer in component.consumers() {
        let mounted = bed.directory.mount(consumer, Arc::clone(&bed.azure.clock));
        volumes.push(mounted.map_err(|error| refuse(&error))?);
    }
    for mounted in &mut volumes {
        publish(mounted, decoded)?;
    }
    let places: Vec<_> = volumes.iter().map(ToString::to_string).collect();
    Ok(Found::new(volumes, places.join("; ")))
}

/// Makes the decoded files the content of a volume.
pub(crate) fn publish(mounted: &mut Mounted, decoded: &DecodedFiles) -> Result<Published, Failure> {
    let entries = decoded
        .files
        .iter()
        .map(|file| {
            let path: FilePath = file.path.parse()?;
            Ok(FileEntry::new(path, file.content.expose(), file.mode))
        })
        .collect::<Result<Vec<_>, lanyard_node::ParseFilePathError>>()
        .map_err(|error| Failure::of(&error, "correct objectAlias or objectName"))?;
    mounted
        .volume
        .publish(&entries)
        .map_err(|error| Failure::of(&error, error.hint().unwrap_or("see the node's logs")))
}

/// The file that a component's first consumer reads.
pub(crate) fn credential_path(
    bed: &Roadbed,
    component: Component,
    volumes: &[Mounted],
) -> Option<std::path::PathBuf> {
    let identity = bed.azure.cluster.identities.get(&component)?;
    Some(volumes.first()?.volume.dir().join(identity.secret_name.as_str()))
}

async fn load_credential(
    bed: &Roadbed,
    component: Component,
    volumes: &[Mounted],
) -> HopResult<Arc<ReloadingCertificateCredential>> {
    let Some(path) = credential_path(bed, component, volumes) else {
        return Err(Failure::new("there is no mounted file", "see the hop `file`"));
    };
    let mut options = ReloadingCertificateOptions::default();
    options.transport = bed.azure.token_transport.clone();
    let credential = ReloadingCertificateCredential::open(&path, options)
        .await
        .map_err(|error| Failure::of(&error, error.hint()))?;
    let generation = credential.generation();
    let bundle = generation.bundle();
    let detail = format!(
        "client {}, {}, expires {}",
        generation.client_id(),
        bundle.format(),
        generation.expires_at()
    );
    Ok(Found::new(credential, detail))
}

fn scope_of(azure: &AzureEnd, proof: Option<&ProofCall>) -> String {
    match proof.map(|proof| &proof.target) {
        Some(ProofTarget::Vault { .. }) => azure.vault_scope(),
        _ => ArmClient::scope(azure.endpoints),
    }
}

async fn entra_token(
    bed: &Roadbed,
    credential: &Arc<ReloadingCertificateCredential>,
    proof: Option<&ProofCall>,
) -> HopResult<()> {
    let scope = scope_of(&bed.azure, proof);
    let token = credential
        .get_token(&[&scope], None)
        .await
        .map_err(|error| Failure::of(&error, token_hint(&error)))?;
    let expires = crate::time::rfc3339(token.expires_on);
    Ok(Found::new((), format!("{scope}, valid until {expires}")))
}

/// Makes a proof call, and compares what came back with what must.
pub(crate) async fn prove(
    azure: &AzureEnd,
    credential: &Arc<ReloadingCertificateCredential>,
    proof: Option<&ProofCall>,
) -> HopResult<()> {
    let Some(proof) = proof else {
        let hint = "give the HostedCluster what the call needs, such as a base domain";
        return Err(Failure::new("there is no call that would prove the role", hint));
    };
    let tokens: Arc<dyn TokenCredential> = Arc::<ReloadingCertificateCredential>::clone(credential);
    let text = proof.url(azure.endpoints);
    let result = match text.parse() {
        Ok(url) => {
            let scope = scope_of(azure, Some(proof));
            Caller::new(scope, tokens, &azure.transport).fetch(&url).await
        }
        Err(_) => Err(CallError::Target { target: text }),
    };
    judge(proof, result)
}

fn judge(proof: &ProofCall, result: Result<lanyard_azure::Reply, CallError>) -> HopResult<()> {
    let (status, code) = match &result {
        Ok(reply) => (reply.status, ""),
        Err(error) => (error.status().unwrap_or_default(), error.code().unwrap_or_default()),
    };
    let permission = proof.permission;
    if proof.is_met_by(status, code) {
        return Ok(Found::new(
            (),
            match proof.expected {
                Expected::Granted => {
                    format!("{status} {code} with {permission}").replace("  ", " ")
                }
                Expected::Refused => format!("{status} {code} without {permission}"),
            },
        ));
    }
    Err(match result {
        Ok(_) => {
            let detail = format!("{status} although the role has no {permission}");
            Failure::new(detail, "look for another role assignment of the identity")
        }
        Err(error) => Failure::of(&error, error.hint()),
    })
}

impl std::fmt::Display for Mounted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.in_memory { "tmpfs" } else { "plain directory" };
        write!(formatter, "{} ({kind})", self.volume.dir().display())
    }
}
