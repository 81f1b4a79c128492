//! Tests the container image as a container runtime would run it: the binary in a root with only the image's
//! files, in a network namespace without a route out, with a fake name server and a fake Entra ID.
//!
//! `cargo xtask image try` builds the image and calls this program in a new network namespace. The root has
//! no hosts file, so every name that resolves was resolved through DNS.

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

/// Test the container image.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance-image")]
struct ImageTestArgs {
    /// Directory with the files of the image
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Environment variables of the image
    #[arg(long, value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// A command that the image must have; can be repeated
    #[arg(long = "command", value_name = "NAME", required = true)]
    commands: Vec<String>,
    /// Run only the cases whose names contain this text
    filter: Option<String>,
}

/// The test environment could not be set up.
#[derive(Debug, Error)]
enum ImageSetupError {
    #[error("could not enable the loopback device of the network namespace")]
    Loopback(#[source] io::Error),
    #[error("`ip link set lo up` failed with {0}")]
    LoopbackExitStatus(std::process::ExitStatus),
    #[error("could not listen on {address}")]
    Listen {
        address: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("could not generate a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("could not configure TLS with a generated certificate")]
    Serve(#[from] rustls::Error),
    #[error("could not write a file of the sandbox")]
    File(#[from] io::Error),
}

/// The fixture that all cases share.
struct ImageFixture {
    arguments: ImageTestArgs,
    name_server: FakeNameServer,
    entra: FakeEntra,
    /// Stands in for the public CAs.
    public_ca: ImageTestCa,
    /// Stands in for a company's private CA.
    private_ca: ImageTestCa,
    client_secret: String,
}

fn main() -> ExitCode {
    let arguments = ImageTestArgs::parse();
    let runner = libtest_mimic::Arguments {
        filter: arguments.filter.clone(),
        // The fake Entra ID serves one certificate at a time.
        test_threads: Some(1),
        ..libtest_mimic::Arguments::default()
    };
    match ImageFixture::start(arguments) {
        Ok(fixture) => {
            let conclusion = libtest_mimic::run(&runner, trials(&Arc::new(fixture)));
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

    /// Runs `lanyard credential check` in the sandbox. `server` signs the certificate of the fake Entra ID,
    /// and the sandbox trusts `private` in addition to the public CA. Returns the observed DNS queries,
    /// requests and output.
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
        let output =
            sandbox.run(&environment, &["credential", "check", sandbox::CREDENTIAL_PATH])?;
        Ok(CredentialCheckResult {
            queried_names: self.name_server.take_queried_names(),
            requests: self.entra.take_requests(),
            output,
        })
    }
}

/// DNS queries and HTTP requests that reached the fakes, and the output of the program.
struct CredentialCheckResult {
    queried_names: Vec<String>,
    requests: Vec<String>,
    output: String,
}

/// The host of Entra ID in the public cloud.
const ENTRA_HOST: &str = "login.microsoftonline.com";

fn trials(fixture: &Arc<ImageFixture>) -> Vec<Trial> {
    let case = |name: &str, case: fn(&ImageFixture) -> Result<(), Failed>| {
        let fixture = Arc::clone(fixture);
        Trial::test(name, move || case(&fixture))
    };
    let mut cases = vec![
        case("the_program_runs_in_an_empty_root", program_runs),
        case("help_lists_exactly_the_commands_of_the_image", help_lists_image_commands),
        case("ca_bundle_contains_the_root_of_azure", image_contains_azure_root),
    ];
    if fixture.arguments.commands.iter().any(|name| name == "credential") {
        cases.extend([
            case("names_resolve_through_dns_without_a_hosts_file", names_resolve_through_dns),
            case("private_ca_is_trusted_in_addition_to_public_roots", private_ca_is_trusted),
            case("public_roots_stay_trusted_with_a_private_ca", public_roots_stay_trusted),
            case("unknown_ca_is_rejected", unknown_ca_is_rejected),
        ]);
    }
    cases
}

fn program_runs(fixture: &ImageFixture) -> Result<(), Failed> {
    let created = ContainerSandbox::create(
        &fixture.arguments.root,
        fixture.public_ca.pem(),
        &fixture.client_secret,
    );
    let sandbox = created.map_err(trial_failure)?;
    let output =
        sandbox.run(&fixture.arguments.environment, &["--version"]).map_err(trial_failure)?;
    expect_true(output.starts_with("lanyard "), &output)
}

fn help_lists_image_commands(fixture: &ImageFixture) -> Result<(), Failed> {
    let created = ContainerSandbox::create(
        &fixture.arguments.root,
        fixture.public_ca.pem(),
        &fixture.client_secret,
    );
    let output = created
        .and_then(|it| it.run(&fixture.arguments.environment, &["--help"]))
        .map_err(trial_failure)?;
    let mut listed: Vec<_> = output
        .lines()
        .skip_while(|line| !line.starts_with("Usage: "))
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        // Continuation lines of a description start with more blanks.
        .filter(|name| !matches!(*name, "" | "help"))
        .collect();
    listed.sort_unstable();
    expect_true(listed == fixture.arguments.commands, &output)
}

/// Reads the bundle of the image itself: the other cases replace it in their sandbox.
fn image_contains_azure_root(fixture: &ImageFixture) -> Result<(), Failed> {
    let bundle = fixture.arguments.root.join(sandbox::CA_BUNDLE_PATH);
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

/// The root that signs most certificates of Azure. The test of the bundle's build verifies that the name
/// belongs to the right certificate.
const AZURE_ROOT: &str = "DigiCert Global Root G2";

fn names_resolve_through_dns(fixture: &ImageFixture) -> Result<(), Failed> {
    let observed = fixture.run_credential_check(&fixture.public_ca, None).map_err(trial_failure)?;
    expect_true(
        observed.queried_names.iter().any(|name| name == ENTRA_HOST),
        &format!("queried names: {:?}", observed.queried_names),
    )?;
    expect_token_request(&observed)
}

fn private_ca_is_trusted(fixture: &ImageFixture) -> Result<(), Failed> {
    expect_token_request(
        &fixture
            .run_credential_check(&fixture.private_ca, Some(&fixture.private_ca))
            .map_err(trial_failure)?,
    )
}

fn public_roots_stay_trusted(fixture: &ImageFixture) -> Result<(), Failed> {
    expect_token_request(
        &fixture
            .run_credential_check(&fixture.public_ca, Some(&fixture.private_ca))
            .map_err(trial_failure)?,
    )
}

fn unknown_ca_is_rejected(fixture: &ImageFixture) -> Result<(), Failed> {
    let observed =
        fixture.run_credential_check(&fixture.private_ca, None).map_err(trial_failure)?;
    expect_true(
        observed.requests.is_empty(),
        &format!("requests {:?} arrived although the CA is unknown", observed.requests),
    )?;
    // The client must reject the certificate for this reason only.
    expect_true(observed.output.contains("UnknownIssuer"), &observed.output)
}

/// Expects that a token request arrived over TLS.
fn expect_token_request(observed: &CredentialCheckResult) -> Result<(), Failed> {
    let is_for_token =
        |line: &String| line.starts_with("POST /") && line.contains("/oauth2/v2.0/token");
    expect_true(
        observed.requests.iter().any(is_for_token),
        &format!("requests: {:?}; output: {}", observed.requests, observed.output),
    )
}

fn expect_true(holds: bool, message: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message.into()) }
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
