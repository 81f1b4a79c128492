//! The image, tried as a container runtime would run it: the binary in a root that holds what the
//! image holds, in a network without a way out, with a name server and an Entra ID of our own.
//!
//! `cargo xtask image try` builds the image and calls this inside a new network namespace.
//! The root has no hosts file, so a name that is reached was resolved through DNS.

mod certificates;
mod fake_entra;
mod name_server;
mod sandbox;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::Parser;
use libtest_mimic::{Failed, Trial};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use thiserror::Error;

use crate::certificates::{ImageTestCa, generate_client_secret};
use crate::fake_entra::FakeEntra;
use crate::name_server::FakeNameServer;
use crate::sandbox::ContainerSandbox;

/// Try the container image.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance-image")]
struct ImageTestArgs {
    /// The files of the image
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Variables of the image
    #[arg(long, value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// The commands of the image, each one
    #[arg(long = "command", value_name = "NAME", required = true)]
    commands: Vec<String>,
    /// Run only the cases whose names contain this
    filter: Option<String>,
}

/// The surroundings could not be made.
#[derive(Debug, Error)]
enum ImageSetupError {
    #[error("the loopback device of the new network could not be switched on")]
    Loopback(#[source] io::Error),
    #[error("`ip link set lo up` ended with {0}")]
    LoopbackExitStatus(std::process::ExitStatus),
    #[error("no server could listen on {address}")]
    Listen {
        address: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    #[error("a certificate could not be served")]
    Serve(#[from] rustls::Error),
    #[error("a file of the sandbox could not be written")]
    File(#[from] io::Error),
}

/// Everything that the cases share.
struct ImageFixture {
    arguments: ImageTestArgs,
    name_server: FakeNameServer,
    entra: FakeEntra,
    /// Stands for the public roots.
    public_ca: ImageTestCa,
    /// Stands for the authority of a company.
    private_ca: ImageTestCa,
    client_secret: String,
}

fn main() -> ExitCode {
    let arguments = ImageTestArgs::parse();
    let runner = libtest_mimic::Arguments {
        filter: arguments.filter.clone(),
        // One server, one certificate at a time.
        test_threads: Some(1),
        ..libtest_mimic::Arguments::default()
    };
    match ImageFixture::start(arguments) {
        Ok(world) => {
            let conclusion = libtest_mimic::run(&runner, trials(&Arc::new(world)));
            if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            writeln!(io::stderr().lock(), "error: {}", error_with_sources(&error))
                .unwrap_or_default();
            ExitCode::from(2)
        }
    }
}

impl ImageFixture {
    fn start(arguments: ImageTestArgs) -> Result<Self, ImageSetupError> {
        let status = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .map_err(ImageSetupError::Loopback)?;
        if !status.success() {
            return Err(ImageSetupError::LoopbackExitStatus(status));
        }
        let public = ImageTestCa::generate("public stand-in")?;
        Ok(Self {
            name_server: FakeNameServer::start()?,
            entra: FakeEntra::start(public.tls_server_config(ENTRA_HOST)?)?,
            private_ca: ImageTestCa::generate("private stand-in")?,
            client_secret: generate_client_secret()?,
            public_ca: public,
            arguments,
        })
    }

    /// Asks for a token from inside the root, with the server's certificate from one authority,
    /// and returns what was seen.
    fn run_credential_check(
        &self,
        server: &ImageTestCa,
        private: Option<&ImageTestCa>,
    ) -> Result<CredentialCheckResult, ImageSetupError> {
        self.entra.set_certificate(server.tls_server_config(ENTRA_HOST)?);
        let sandbox = ContainerSandbox::create(
            &self.arguments.root,
            self.public_ca.pem(),
            &self.client_secret,
        )?;
        let mut environment = self.arguments.environment.clone();
        if let Some(authority) = private {
            environment.push(sandbox.add_private_ca(authority.pem())?);
        }
        let said = sandbox.run(&environment, &["credential", "check", sandbox::CREDENTIAL_PATH])?;
        Ok(CredentialCheckResult {
            queried_names: self.name_server.take_queried_names(),
            requests: self.entra.take_requests(),
            output: said,
        })
    }
}

/// What reached the servers, and what the program said.
struct CredentialCheckResult {
    queried_names: Vec<String>,
    requests: Vec<String>,
    output: String,
}

/// The name of Entra ID in the public cloud.
const ENTRA_HOST: &str = "login.microsoftonline.com";

fn trials(world: &Arc<ImageFixture>) -> Vec<Trial> {
    let case = |name: &str, case: fn(&ImageFixture) -> Result<(), Failed>| {
        let world = Arc::clone(world);
        Trial::test(name, move || case(&world))
    };
    let mut cases = vec![
        case("the_program_runs_in_an_empty_root", program_runs),
        case("help_lists_exactly_the_commands_of_the_image", help_lists_image_commands),
        case("ca_bundle_contains_the_root_of_azure", image_contains_azure_root),
    ];
    if world.arguments.commands.iter().any(|name| name == "credential") {
        cases.extend([
            case("names_resolve_through_dns_without_a_hosts_file", names_resolve_through_dns),
            case("private_ca_is_trusted_in_addition_to_public_roots", private_ca_is_trusted),
            case("public_roots_stay_trusted_with_a_private_ca", public_roots_stay_trusted),
            case("unknown_ca_is_rejected", unknown_ca_is_rejected),
        ]);
    }
    cases
}

fn program_runs(world: &ImageFixture) -> Result<(), Failed> {
    let made = ContainerSandbox::create(
        &world.arguments.root,
        world.public_ca.pem(),
        &world.client_secret,
    );
    let sandbox = made.map_err(trial_failure)?;
    let said = sandbox.run(&world.arguments.environment, &["--version"]).map_err(trial_failure)?;
    expect_true(said.starts_with("lanyard "), &said)
}

fn help_lists_image_commands(world: &ImageFixture) -> Result<(), Failed> {
    let made = ContainerSandbox::create(
        &world.arguments.root,
        world.public_ca.pem(),
        &world.client_secret,
    );
    let said = made
        .and_then(|it| it.run(&world.arguments.environment, &["--help"]))
        .map_err(trial_failure)?;
    let mut listed: Vec<_> = said
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        // The second line of a description starts with more blanks.
        .filter(|name| !matches!(*name, "" | "help"))
        .collect();
    listed.sort_unstable();
    expect_true(listed == world.arguments.commands, &said)
}

/// The other cases put a root of their own in the place of these.
fn image_contains_azure_root(world: &ImageFixture) -> Result<(), Failed> {
    let bundle = world.arguments.root.join(sandbox::CA_BUNDLE_PATH);
    let roots = CertificateDer::pem_file_iter(&bundle).map_err(trial_failure)?;
    let roots: Vec<_> = roots.collect::<Result<_, _>>().map_err(trial_failure)?;
    let mut store = RootCertStore::empty();
    let (_, unusable) = store.add_parsable_certificates(roots);
    expect_true(unusable == 0, &format!("{unusable} roots cannot be used"))?;
    let name = AZURE_ROOT.as_bytes();
    let is_azures = |root: &[u8]| root.windows(name.len()).any(|part| part == name);
    let found = store.roots.iter().any(|root| is_azures(root.subject.as_ref()));
    expect_true(found, &format!("{AZURE_ROOT} is not among {} roots", store.len()))
}

/// The name in the root that most names of Azure are signed below. That the right certificate bears
/// it is tested where the bundle is made.
const AZURE_ROOT: &str = "DigiCert Global Root G2";

fn names_resolve_through_dns(world: &ImageFixture) -> Result<(), Failed> {
    let seen = world.run_credential_check(&world.public_ca, None).map_err(trial_failure)?;
    expect_true(
        seen.queried_names.iter().any(|name| name == ENTRA_HOST),
        &format!("asked for {:?}", seen.queried_names),
    )?;
    expect_token_request(&seen)
}

fn private_ca_is_trusted(world: &ImageFixture) -> Result<(), Failed> {
    expect_token_request(
        &world
            .run_credential_check(&world.private_ca, Some(&world.private_ca))
            .map_err(trial_failure)?,
    )
}

fn public_roots_stay_trusted(world: &ImageFixture) -> Result<(), Failed> {
    expect_token_request(
        &world
            .run_credential_check(&world.public_ca, Some(&world.private_ca))
            .map_err(trial_failure)?,
    )
}

fn unknown_ca_is_rejected(world: &ImageFixture) -> Result<(), Failed> {
    let seen = world.run_credential_check(&world.private_ca, None).map_err(trial_failure)?;
    expect_true(seen.requests.is_empty(), &format!("{:?} got through", seen.requests))?;
    // Refused for this reason, and for no other.
    expect_true(seen.output.contains("UnknownIssuer"), &seen.output)
}

/// A request for a token got through TLS.
fn expect_token_request(seen: &CredentialCheckResult) -> Result<(), Failed> {
    let is_for_token =
        |line: &String| line.starts_with("POST /") && line.contains("/oauth2/v2.0/token");
    expect_true(
        seen.requests.iter().any(is_for_token),
        &format!("requests: {:?}; the program said: {}", seen.requests, seen.output),
    )
}

fn expect_true(holds: bool, what_was: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what_was.into()) }
}

fn trial_failure(error: impl Error) -> Failed {
    error_with_sources(&error).into()
}

fn error_with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
