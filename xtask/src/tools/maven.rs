//! Installs modules from Maven Central, and compiles the Java program of `conformance/java`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::InstalledTool;
use super::cache::{ToolFingerprint, file_error, install_atomically, list_files, make_directory};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The argument of `java` that runs the program of `conformance/java`: a file of options.
pub(crate) fn java_clients(repository: &Repository) -> Result<OsString, TaskError> {
    let mut argument = OsString::from("@");
    argument.push(install_java_clients(repository)?.path.join("arguments"));
    Ok(argument)
}

/// Installs the modules of the `pom.xml`, which pins their versions, and compiles the program.
pub(super) fn install_java_clients(repository: &Repository) -> Result<InstalledTool, TaskError> {
    if !["java", "javac", "mvn"].iter().all(|program| repository.has_program(program)) {
        return Err(TaskError::Missing {
            program: "Java",
            hint: "install a JDK (17 or later) and Maven, or run .ci/run, which does",
        });
    }
    let directory = repository.root().join("conformance").join("java");
    let project = directory.join("pom.xml");
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "java");
    let sources: Vec<_> = list_files(&directory)?.into_iter().filter(is_source).collect();
    let fingerprint = ToolFingerprint::new().with(OPTIONS.as_bytes());
    let version =
        fingerprint.with_files(std::slice::from_ref(&project))?.with_files(&sources)?.to_hex();
    let place = repository.tool_directory("java-clients", &version);
    install_atomically(&place, |half| {
        let modules = half.join("modules");
        let mut download = Command::new("mvn");
        download.args(["--batch-mode", "--quiet", "--file"]).arg(&project);
        download.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
        process::run(download.arg(joined("-DoutputDirectory=", &modules)))?;
        let classes = half.join("classes");
        make_directory(&classes)?;
        let mut compile = Command::new("javac");
        compile.arg("-d").arg(&classes).arg("-classpath").arg(modules.join("*"));
        process::run(compile.args(["-Xlint:all", "-Werror"]).args(&sources))?;
        let arguments = half.join("arguments");
        fs::write(&arguments, options(&place)).map_err(file_error("write", &arguments))
    })?;
    Ok(InstalledTool { version, path: place })
}

/// The options of a short run.
const OPTIONS: &str = "-XX:TieredStopAtLevel=1\n-XX:+UseSerialGC\nClients\n";

/// The content of an argument file for the programs in `place`.
fn options(place: &Path) -> String {
    let place = place.display();
    format!("-classpath \"{place}/classes:{place}/modules/*\"\n{OPTIONS}")
}

fn joined(prefix: &str, path: &Path) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(path);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_quote_the_class_path() {
        let options = options(Path::new("/tools/java clients/1"));
        assert!(options.starts_with(
            "-classpath \"/tools/java clients/1/classes:/tools/java clients/1/modules/*\"\n"
        ));
        assert!(options.ends_with("\nClients\n"));
    }
}
