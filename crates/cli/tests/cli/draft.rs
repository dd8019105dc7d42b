//! Input files with something wrong in them.

use crate::{BASIC, ROOT};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// A file as the example, with one thing changed.
pub struct Draft {
    pub tensors: HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
    metadata: HashMap<String, String>,
}

impl Draft {
    pub fn new() -> Self {
        Self::of(BASIC)
    }

    pub fn of(path: &str) -> Self {
        let bytes = fs::read(Path::new(ROOT).join(path)).expect("an example");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("an example");
        let file = SafeTensors::deserialize(&bytes).expect("an example");
        let tensor = |(name, view): (&str, TensorView)| {
            (name.to_owned(), (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        };
        Self {
            tensors: file.iter().map(tensor).collect(),
            metadata: header.metadata().clone().expect("metadata"),
        }
    }

    pub fn without(mut self, name: &str) -> Self {
        assert!(
            self.tensors.remove(name).is_some() | self.metadata.remove(name).is_some(),
            "{name}"
        );
        self
    }

    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    pub fn shaped(mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Self {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        self.tensors.insert(name.into(), (dtype, shape.to_vec(), vec![0; bytes]));
        self
    }

    /// The tensor's values in another type.
    pub fn typed(mut self, name: &str, dtype: Dtype) -> Self {
        let tensor = self.tensors.get_mut(name).expect("a tensor");
        let values = tensor.2.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        tensor.2 = match dtype {
            Dtype::BF16 => values.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
            Dtype::F16 => values.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
            _ => values.flat_map(|x| f64::from(x).to_le_bytes()).collect(),
        };
        tensor.0 = dtype;
        self
    }

    pub fn index(mut self, name: &str, at: usize, value: i64) -> Self {
        let tensor = self.tensors.get_mut(name).expect("a tensor");
        tensor.2[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("in.safetensors");
        let views = self.tensors.iter().map(|(name, (dtype, shape, data))| {
            (name, TensorView::new(*dtype, shape.clone(), data).expect("a tensor"))
        });
        safetensors::serialize_to_file(views, Some(self.metadata.clone()), &path)
            .expect("the file is written");
        path
    }
}
