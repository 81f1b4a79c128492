//! The hops of one component, each a call of the crate that owns it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_api::{ProviderParameters, SecretProviderClass};
use lanyard_azure::{ArmClient, CallError, Caller};
use lanyard_credential::{ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError};
use lanyard_desired::proof::{Expected, ProofCall, ProofTarget};
use lanyard_keyvault::{Pod, Proofs, UnlimitedMemory, encoding};
use lanyard_node::{FillRequest, Filling, PublishError, Refusal, Urgency};
use lanyard_vocabulary::{Component, Hop};

use crate::azure_end::AzureEnd;
use crate::report::Failure;
use crate::roadbed::Roadbed;
use crate::run_directory::OpenVolume;
use crate::walk::{Found, Stopped, Walk};

/// What a component has at the end of its way.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) class: Arc<SecretProviderClass>,
    pub(crate) volumes: Vec<OpenVolume>,
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
    let (class, parameters) =
        walk.hop(Hop::SecretProviderClass, secret_provider_class(bed, component)).await?;
    walk.hop(Hop::Volume, async { volume(bed, component) }).await?;
    walk.hop(Hop::ImdsToken, imds_token(bed, component, &parameters)).await?;
    let filled = walk.hop(Hop::VaultRead, vault_read(bed, component, &class)).await?;
    let filling = walk.hop(Hop::Decode, async { decode(filled) }).await?;
    let volumes = walk.hop(Hop::File, async { file(bed, component, &filling) }).await?;
    let arrived = arrived.insert(Arrived { class, volumes, credential: None });
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
) -> HopResult<(Arc<SecretProviderClass>, ProviderParameters)> {
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
    Ok(Found::new((class, parameters), format!("{namespace}/{name}")))
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

async fn imds_token(
    bed: &Roadbed,
    component: Component,
    parameters: &ProviderParameters,
) -> HopResult<()> {
    let (pod, proofs) = (pod(bed, component), Proofs::default());
    let authenticated = Box::pin(bed.vaults.authenticate(parameters, &pod, &proofs)).await;
    let expires = authenticated.map_err(|error| {
        let hint = error.hint();
        Failure::of(&error, hint.unwrap_or_else(|| "see the cause".to_owned()))
    })?;
    // All components have the same token, which is requested once.
    let detail = format!(
        "one token of managed identity {} for all, valid until {expires}",
        bed.azure.reader_client_id
    );
    Ok(Found::new((), detail))
}

/// The next step of a credential's error, which knows it best.
fn token_hint(error: &azure_core::Error) -> String {
    TokenError::of(error)
        .and_then(TokenError::hint)
        .unwrap_or_else(|| "see the logs with --log lanyard_credential=debug".to_owned())
}

/// What the provider returned: the vault was read, and what follows may have failed.
pub(crate) type Filled = Result<Filling, Refusal>;

async fn vault_read(
    bed: &Roadbed,
    component: Component,
    class: &SecretProviderClass,
) -> HopResult<Filled> {
    let vault = &bed.azure.cluster.vault.name;
    match fill(bed, component, class, Urgency::Mount).await {
        Ok(filling) => {
            let versions = filling.versions.iter();
            let versions: Vec<_> =
                versions.map(|it| format!("{} version `{}`", it.id, it.version)).collect();
            let detail = format!("vault `{vault}`: {}", versions.join(", "));
            Ok(Found::new(Ok(filling), detail))
        }
        Err(refusal) if refusal.code.hop() > Hop::VaultRead => {
            Ok(Found::new(Err(refusal), format!("vault `{vault}`")))
        }
        Err(refusal) => Err(failure_of(refusal)),
    }
}

/// Asks the provider of the node for the files of a component.
pub(crate) async fn fill(
    bed: &Roadbed,
    component: Component,
    class: &SecretProviderClass,
    urgency: Urgency,
) -> Filled {
    let request = FillRequest {
        class,
        pod: &pod(bed, component),
        attributes: &BTreeMap::new(),
        proofs: &Proofs::default(),
        target: "",
        urgency,
        mounted: &[],
        memory: &UnlimitedMemory,
    };
    bed.provider.fill(&request).await
}

/// The pod for which a component's class is read. The vault reader is the node's managed identity,
/// so the name is for logs only.
fn pod(bed: &Roadbed, component: Component) -> Pod {
    Pod {
        namespace: bed.desired.namespace.clone(),
        name: component.name().to_owned(),
        uid: String::new(),
        service_account: String::new(),
    }
}

/// A refusal of the provider, as the report shows it.
fn failure_of(refusal: Refusal) -> Failure {
    Failure::new(refusal.message, refusal.hint)
}

pub(crate) fn decode(filled: Filled) -> HopResult<Filling> {
    let filling = filled.map_err(failure_of)?;
    for file in &filling.files {
        if let Some(seems) = encoding::suspicion(file.content.expose()) {
            let detail = format!("`{}` decodes to text that still is {seems}", file.path);
            let hint = format!("declare objectEncoding {seems}, or store the value decoded");
            return Err(Failure::new(detail, hint));
        }
    }
    let files = filling.files.iter();
    let files: Vec<_> =
        files.map(|file| format!("{} ({} bytes)", file.path, file.content.len())).collect();
    Ok(Found::new(filling, files.join(", ")))
}

fn file(bed: &Roadbed, component: Component, filling: &Filling) -> HopResult<Vec<OpenVolume>> {
    let hint =
        |error: &PublishError| error.hint().unwrap_or("check the directory given with --directory");
    let mut volumes = Vec::new();
    for consumer in component.consumers() {
        let opened = bed.directory.open_volume(consumer);
        volumes.push(opened.map_err(|error| Failure::of(&error, hint(&error)))?);
    }
    for volume in &mut volumes {
        publish(volume, filling)?;
    }
    let places: Vec<_> = volumes.iter().map(ToString::to_string).collect();
    Ok(Found::new(volumes, places.join("; ")))
}

/// Makes the files of the provider the content of a volume.
pub(crate) fn publish(open: &mut OpenVolume, filling: &Filling) -> Result<(), Failure> {
    let published = open.volume.publish(&filling.entries(None)).map(drop);
    published
        .map_err(|error| Failure::of(&error, error.hint().unwrap_or("run again with --log debug")))
}

/// The file that a component's first consumer reads.
pub(crate) fn credential_path(
    bed: &Roadbed,
    component: Component,
    volumes: &[OpenVolume],
) -> Option<PathBuf> {
    let identity = bed.azure.cluster.identities.get(&component)?;
    Some(volumes.first()?.volume.dir().join(identity.secret_name.as_str()))
}

async fn load_credential(
    bed: &Roadbed,
    component: Component,
    volumes: &[OpenVolume],
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

impl std::fmt::Display for OpenVolume {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.in_memory { "tmpfs" } else { "plain directory" };
        write!(formatter, "{} ({kind})", self.volume.dir().display())
    }
}
