//! Builds programs from Go modules.
//!
//! `go install module@version` does not support modules with replacements, so each recipe is a small module
//! below `conformance/tools`: its `go.mod` pins the version and lists the programs as tools, and its `go.sum`
//! pins all dependencies. The version is read from `go.mod`; the table below contains the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::InstalledTool;
use super::cache::{ToolFingerprint, file_error, install_atomically, list_files};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// How programs are built from a Go module.
#[derive(Debug)]
pub(super) struct GoToolRecipe {
    /// The tool, and the directory below `conformance/tools`.
    pub(super) name: &'static str,
    /// The module whose version is the version of the tool.
    module: &'static str,
    /// File names and the packages they are built from.
    programs: &'static [(&'static str, &'static str)],
    /// The string variables to set with the linker. `{version}`, `{major}` and `{minor}` are replaced.
    stamps: &'static [(&'static str, &'static str)],
    /// Whether the programs need C code. All others are linked statically.
    cgo: bool,
    /// Whether CI does not need the tool.
    pub(super) on_demand: bool,
}

/// Without these variables Kubernetes reports the version v0.0.0.
const KUBERNETES_STAMPS: &[(&str, &str)] = &[
    ("k8s.io/component-base/version.gitVersion", "{version}"),
    ("k8s.io/component-base/version.gitMajor", "{major}"),
    ("k8s.io/component-base/version.gitMinor", "{minor}"),
];

const DRIVER: &str = "sigs.k8s.io/secrets-store-csi-driver";
const DRIVER_PROGRAMS: &[(&str, &str)] = &[(
    "secrets-store-csi-driver",
    "sigs.k8s.io/secrets-store-csi-driver/cmd/secrets-store-csi-driver",
)];
const DRIVER_STAMPS: &[(&str, &str)] =
    &[("sigs.k8s.io/secrets-store-csi-driver/pkg/version.BuildVersion", "{version}")];

pub(super) const RECIPES: [GoToolRecipe; 13] = [
    GoToolRecipe {
        name: "etcd",
        module: "go.etcd.io/etcd/server/v3",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
        stamps: &[],
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "kubernetes-1.36",
        module: "k8s.io/kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        stamps: KUBERNETES_STAMPS,
        cgo: false,
        on_demand: false,
    },
    // A controller manager and a scheduler must not be newer than their API server, so this recipe builds the
    // whole control plane. kubectl may be newer.
    GoToolRecipe {
        name: "kubernetes-1.34",
        module: "k8s.io/kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        ],
        stamps: KUBERNETES_STAMPS,
        cgo: false,
        on_demand: true,
    },
    GoToolRecipe {
        name: "csi-sanity",
        module: "github.com/kubernetes-csi/csi-test/v5",
        programs: &[("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")],
        stamps: &[],
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "helm",
        module: "helm.sh/helm/v4",
        programs: &[("helm", "helm.sh/helm/v4/cmd/helm")],
        stamps: &[("helm.sh/helm/v4/internal/version.version", "{version}")],
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "secrets-store-csi-driver-1.6",
        module: DRIVER,
        programs: DRIVER_PROGRAMS,
        stamps: DRIVER_STAMPS,
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "secrets-store-csi-driver-1.5",
        module: DRIVER,
        programs: DRIVER_PROGRAMS,
        stamps: DRIVER_STAMPS,
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "azure-provider",
        module: "github.com/Azure/secrets-store-csi-driver-provider-azure",
        programs: &[(
            "secrets-store-csi-driver-provider-azure",
            "github.com/Azure/secrets-store-csi-driver-provider-azure/cmd",
        )],
        stamps: &[(
            "github.com/Azure/secrets-store-csi-driver-provider-azure/pkg/version.BuildVersion",
            "{version}",
        )],
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "kubernetes-kms",
        module: "github.com/Azure/kubernetes-kms",
        programs: &[("kubernetes-kms", "github.com/Azure/kubernetes-kms/cmd/server")],
        stamps: &[("github.com/Azure/kubernetes-kms/pkg/version.BuildVersion", "{version}")],
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "vale",
        module: "github.com/vale-cli/vale/v3",
        programs: &[("vale", "github.com/vale-cli/vale/v3/cmd/vale")],
        stamps: &[],
        cgo: true,
        on_demand: false,
    },
    GoToolRecipe {
        name: "actionlint",
        module: "github.com/rhysd/actionlint",
        programs: &[("actionlint", "github.com/rhysd/actionlint/cmd/actionlint")],
        stamps: &[],
        cgo: false,
        on_demand: false,
    },
    GoToolRecipe {
        name: "jsonschema",
        module: "github.com/santhosh-tekuri/jsonschema/cmd/jv",
        programs: &[("jv", "github.com/santhosh-tekuri/jsonschema/cmd/jv")],
        stamps: &[],
        cgo: false,
        on_demand: false,
    },
    // The driver's end-to-end provider is a module that no proxy serves. The mock server for the driver's own
    // tests is part of the driver's module.
    GoToolRecipe {
        name: "mock-provider",
        module: DRIVER,
        programs: &[("mock-provider", ".")],
        stamps: &[],
        cgo: false,
        on_demand: false,
    },
];

/// Installs the programs of a recipe.
pub(super) fn install(
    repository: &Repository,
    recipe: &GoToolRecipe,
) -> Result<InstalledTool, TaskError> {
    let directory = recipe_directory(repository, recipe);
    let module_file = directory.join("go.mod");
    let text = fs::read_to_string(&module_file).map_err(file_error("read", &module_file))?;
    let version = required_version(&text, recipe.module).ok_or_else(|| TaskError::Findings {
        check: "recipes whose module is not required by their go.mod",
        findings: vec![format!("{}: {}", recipe.name, recipe.module)],
    })?;
    let build = (recipe.programs, recipe.stamps);
    let mut pins = ToolFingerprint::new().with(format!("{build:?}").as_bytes());
    for place in std::iter::once(directory.clone())
        .chain(local_replacements(&text).into_iter().map(|path| directory.join(path)))
    {
        pins = pins.with_files(&list_files(&place)?)?;
    }
    let place = repository.tool_directory(recipe.name, &format!("{version}-{}", pins.to_hex()));
    install_atomically(&place, |half| {
        recipe.programs.iter().try_for_each(|(program, package)| {
            let mut build = go_command(repository)?;
            if recipe.cgo {
                // Only vale has C code: parsers of programming languages, which compile slowly with optimization and
                // which prose does not need.
                build.env("CGO_ENABLED", "1").env("CGO_CFLAGS", "-O0");
            }
            build.current_dir(&directory).args(["build", "-ldflags"]);
            build.arg(linker_flags(recipe.stamps, version));
            build.arg("-o").arg(half.join(program)).arg(package);
            process::run(&mut build)
        })
    })?;
    Ok(InstalledTool { version: version.to_owned(), path: place })
}

/// The directory of the programs of a tool.
pub(crate) fn go_program(
    repository: &Repository,
    name: &'static str,
) -> Result<PathBuf, TaskError> {
    Ok(install(repository, find_recipe(name)?)?.path)
}

/// Finds the recipe of a tool.
pub(super) fn find_recipe(name: &'static str) -> Result<&'static GoToolRecipe, TaskError> {
    RECIPES.iter().find(|it| it.name == name).ok_or_else(|| TaskError::Unknown {
        what: "recipe",
        name: name.to_owned(),
        known: RECIPES.iter().map(|it| it.name).collect::<Vec<_>>().join(", "),
    })
}

/// A Go command with the same settings on every machine. It shares Go's build cache with other commands that
/// use the same flags.
pub(crate) fn go_command(repository: &Repository) -> Result<Command, TaskError> {
    if !repository.has_program("go") {
        return Err(TaskError::Missing {
            program: "Go",
            hint: "install Go 1.26 or later from https://go.dev/dl",
        });
    }
    let mut command = Command::new("go");
    command.env("GOWORK", "off").env("CGO_ENABLED", "0").env("GOFLAGS", BUILD_FLAGS);
    // Go compiles each package in a process of its own, and only one that needs more than the limit collects garbage:
    // csi-sanity builds with a tenth less processor time. The limit applies once for each processor.
    command.env("GOGC", "off").env("GOMEMLIMIT", "2GiB");
    Ok(command)
}

/// Other flags would recompile all packages. The linker omits debug information, so the compiler does not
/// generate it.
const BUILD_FLAGS: &str = "-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false";

fn recipe_directory(repository: &Repository, recipe: &GoToolRecipe) -> PathBuf {
    repository.root().join("conformance").join("tools").join(recipe.name)
}

/// The version that a go.mod requires of a module.
fn required_version<'a>(module_file: &'a str, module: &str) -> Option<&'a str> {
    directive_entries(module_file, "require").find_map(|entry| {
        let (name, rest) = entry.split_once(' ')?;
        (name == module).then(|| rest.split_whitespace().next())?
    })
}

/// The local directories that replace modules in a go.mod, relative to it.
fn local_replacements(module_file: &str) -> Vec<&Path> {
    let mut paths: Vec<&Path> = directive_entries(module_file, "replace")
        .filter_map(|entry| entry.split_once(" => "))
        .filter(|(_, target)| target.starts_with("./") || target.starts_with("../"))
        .map(|(_, target)| Path::new(target))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The entries of one directive, in both of its forms: `verb entry` and `verb ( entries )`.
fn directive_entries<'a>(module_file: &'a str, verb: &'a str) -> impl Iterator<Item = &'a str> {
    let mut inside = false;
    module_file.lines().filter_map(move |line| {
        let line = line.trim();
        if inside {
            inside = line != ")";
            return (inside && !line.is_empty() && !line.starts_with("//")).then_some(line);
        }
        let rest = line.strip_prefix(verb)?.strip_prefix(' ')?;
        inside = rest == "(";
        (!inside).then_some(rest)
    })
}

fn linker_flags(stamps: &[(&str, &str)], version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let mut flags = "-s -w".to_owned();
    for (variable, template) in stamps {
        let value = template
            .replace("{version}", version)
            .replace("{major}", major)
            .replace("{minor}", minor);
        flags.push_str(" -X ");
        flags.push_str(variable);
        flags.push('=');
        flags.push_str(&value);
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE_FILE: &str = "module x\n\ngo 1.26.0\n\ntool (\n\ta.example/cmd/one\n\t\
        a.example/cmd/two\n)\n\nrequire (\n\ta.example/more v9.9.9\n\ta.example v1.36.3 // \
        indirect\n)\n\nreplace b.example => ../b\n\nreplace (\n\t// why\n\tc.example => \
        c.example v0.36.3\n)\n";

    #[test]
    fn version_is_read_for_the_exact_module() {
        assert_eq!(required_version(MODULE_FILE, "a.example"), Some("v1.36.3"));
        assert_eq!(required_version("require a.example v2.0.0\n", "a.example"), Some("v2.0.0"));
        assert_eq!(required_version(MODULE_FILE, "a.exam"), None);
    }

    #[test]
    fn only_directories_are_local_replacements() {
        assert_eq!(local_replacements(MODULE_FILE), [Path::new("../b")]);
    }

    #[test]
    fn recipe_programs_must_match_go_mod_tools() {
        let recipe = |programs| GoToolRecipe {
            cgo: false,
            name: "x",
            module: "a.example",
            programs,
            stamps: &[],
            on_demand: false,
        };
        let both = recipe(&[("two", "a.example/cmd/two"), ("one", "a.example/cmd/one")]);
        assert_eq!(tool_mismatch(&both, MODULE_FILE), None);
        let less = recipe(&[("one", "a.example/cmd/one")]);
        assert!(tool_mismatch(&less, MODULE_FILE).is_some());
    }

    #[test]
    fn recipes_agree_with_their_module_files() {
        let repository =
            Repository::from_environment().expect("the tests run inside the repository");
        for recipe in &RECIPES {
            let path = recipe_directory(&repository, recipe).join("go.mod");
            let text = fs::read_to_string(&path).expect("each recipe has its go.mod");
            assert_eq!(tool_mismatch(recipe, &text), None, "{}", recipe.name);
        }
    }

    /// The tools of a go.mod if they differ from the programs of the recipe.
    fn tool_mismatch<'a>(recipe: &GoToolRecipe, module_file: &'a str) -> Option<Vec<&'a str>> {
        let mut tools: Vec<&str> = directive_entries(module_file, "tool").collect();
        let mut packages: Vec<&str> =
            recipe.programs.iter().map(|(_, package)| *package).filter(|it| *it != ".").collect();
        tools.sort_unstable();
        packages.sort_unstable();
        let required = required_version(module_file, recipe.module).is_some();
        (tools != packages || !required).then_some(tools)
    }

    #[test]
    fn stamps_carry_the_version_and_its_numbers() {
        assert_eq!(
            linker_flags(&[("p.full", "{version}"), ("p.minor", "{minor}")], "v1.36.3"),
            "-s -w -X p.full=v1.36.3 -X p.minor=36"
        );
        assert_eq!(linker_flags(&[], "v5.5.0"), "-s -w");
    }
}
