//! Writes the CustomResourceDefinitions, with a list of them for kustomize, into a folder, and the reference into another:
//! `crdgen config/crd docs/reference`.

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
};

use capmaas_api::{crd, reference};

const USAGE: &str = "usage: crdgen CRD_FOLDER [REFERENCE_FOLDER]
Writes one file for each CustomResourceDefinition, and kustomization.yaml, into CRD_FOLDER,
and the tables of fields, conditions and rules into REFERENCE_FOLDER.";

fn main() -> ExitCode {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let written = match folders.as_slice() {
        [crds] => write_crds(crds),
        [crds, docs] => write_crds(crds).and_then(|()| write_reference(docs)),
        _ => Err(USAGE.into()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write_crds(folder: &Path) -> Result<(), Box<dyn Error>> {
    crd::files()?.into_iter().try_for_each(|(name, text)| write(folder, &name, &text))
}

fn write_reference(folder: &Path) -> Result<(), Box<dyn Error>> {
    reference::files()?.into_iter().try_for_each(|(name, text)| write(folder, name, &text))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| format!("crdgen: {} cannot be written: {error}", path.display()).into())
}
