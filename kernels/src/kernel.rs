//! The kernels by name, each bound to the type of its parameters.

use std::marker::PhantomData;
use std::ptr::from_ref;

use crate::driver::Driver;
use crate::error::Result;
use crate::params::*;

/// A kernel whose parameters are `P`.
pub struct Kernel<P> {
    index: usize,
    params: PhantomData<P>,
}

impl<P> Kernel<P> {
    /// Launches over a grid; an empty grid does nothing.
    ///
    /// # Safety
    /// The addresses in `params` are live and large enough for the grid.
    pub unsafe fn launch(&self, driver: &dyn Driver, grid: [usize; 3], params: &P) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let grid = grid.map(|n| n as u32);
        let bytes = from_ref(params).cast::<u8>();
        // SAFETY: the structs have no padding (params.h), and their type is the kernel's; the rest
        // is the caller's.
        unsafe {
            let params = std::slice::from_raw_parts(bytes, size_of::<P>());
            driver.launch(self.index, grid, params)
        }
    }

    /// Its place in [`KERNELS`].
    #[cfg(feature = "cuda")]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether this kernel prepares itself while the one ahead of it runs.
    pub fn overlaps(&self, driver: &dyn Driver) -> bool {
        driver.overlaps(self.index)
    }

    /// Whether the device has the instructions that this kernel is made of.
    pub fn exists(&self, driver: &dyn Driver) -> bool {
        driver.has(self.index)
    }

    /// Blocks of this kernel that run at the same time on the whole device.
    pub fn resident_blocks(&self, driver: &dyn Driver) -> usize {
        driver.multiprocessors() * driver.blocks_per_multiprocessor(self.index)
    }
}

macro_rules! kernels {
    ($($id:ident = $module:literal $name:literal $params:ty,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($id,)* }
        /// Module (file in kernels/cuda) and name of every kernel.
        pub const KERNELS: &[(&str, &str)] = &[$(($module, $name),)*];
        // One that only measures is not used without a GPU.
        $(#[allow(dead_code)] pub const $id: Kernel<$params> =
            Kernel { index: Index::$id as usize, params: PhantomData };)*
    };
}

kernels! {
    NOISE = "rows" "noise_values" NoiseParams,
    READ = "rows" "read_values_all" ReadParams,
    WRITE_SMALL = "rows" "write_words_small" SmallWriteParams,
    WRITE_LARGE = "rows" "write_words_large" LargeWriteParams,
    LAND = "rows" "land_words_of_parts" LandParams,
    GATHER_16 = "rows" "gather_16" GatherParams,
    GATHER_2 = "rows" "gather_2" GatherParams,
    COPY_COLUMNS_16 = "rows" "copy_columns_16" CopyParams,
    COPY_COLUMNS_2 = "rows" "copy_columns_2" CopyParams,
    LINEAR_8 = "linear" "linear_8" LinearParams,
    LINEAR_16 = "linear" "linear_16" LinearParams,
    LINEAR_32 = "linear" "linear_32" LinearParams,
    LINEAR_64 = "linear" "linear_64" LinearParams,
    GATED_LINEAR_8 = "linear" "gated_linear_8" LinearParams,
    GATED_LINEAR_16 = "linear" "gated_linear_16" LinearParams,
    GATED_LINEAR_32 = "linear" "gated_linear_32" LinearParams,
    RMS_NORM = "norm" "rms_norm_rows" NormParams,
    ADD_RMS_NORM = "norm" "add_rms_norm_rows" NormParams,
    ADD = "norm" "add_rows" NormParams,
    ALL_REDUCE = "exchange" "all_reduce_rows" ReduceParams,
    REDUCE_ADD_RMS_NORM = "exchange" "reduce_add_rms_norm_rows" ReduceParams,
    ALL_GATHER = "exchange" "all_gather_words" AllGatherParams,
    GATED_NORM = "norm" "gated_norm_heads" GatedNormParams,
    SWIGLU = "swiglu" "swiglu_rows" SwigluParams,
    GDN_PREPARE = "gdn_conv" "gdn_prepare_rows" GdnPrepareParams,
    GDN_PREPARE_PROMPT = "gdn_conv" "gdn_prepare_prompt" GdnPrepareParams,
    CONV_COMMIT = "gdn_commit" "conv_commit_states" ConvCommitParams,
    COMMIT_LAYERS = "gdn_commit" "commit_gdn_layers" CommitLayersParams,
    GDN_VERIFY_1 = "gdn_verify" "gdn_verify_1" GdnParams,
    GDN_VERIFY_16 = "gdn_verify" "gdn_verify_16" GdnParams,
    GDN_VERIFY_16_FEW = "gdn_verify" "gdn_verify_16_few" GdnParams,
    GDN_VERIFY_32 = "gdn_verify_many" "gdn_verify_32" GdnParams,
    GDN_VERIFY_64 = "gdn_verify_many" "gdn_verify_64" GdnParams,
    GDN_COMMIT = "gdn_commit" "gdn_commit_states" GdnParams,
    GDN_CHUNKS = "gdn_chunk" "gdn_chunks" GdnPrefillParams,
    GDN_PREFILL_32 = "gdn_prefill" "gdn_prefill_32" GdnPrefillParams,
    GDN_PREFILL_64 = "gdn_prefill" "gdn_prefill_64" GdnPrefillParams,
    ATTENTION_PREPARE_128 = "attention_prepare" "attention_prepare_128" AttentionPrepareParams,
    ATTENTION_PREPARE_256 = "attention_prepare" "attention_prepare_256" AttentionPrepareParams,
    KV_COMMIT = "attention_prepare" "kv_commit_rows" KvCommitParams,
    ATTENTION_128 = "attention" "attention_128" AttentionParams,
    ATTENTION_256 = "attention" "attention_256" AttentionParams,
    ATTENTION_WIDE = "attention_wide" "attention_wide_256" AttentionParams,
    ATTENTION_FEW_128 = "attention_few" "attention_few_128" AttentionParams,
    ATTENTION_FEW_256 = "attention_few" "attention_few_256" AttentionParams,
    ATTENTION_TREE_256 = "attention_few" "attention_tree_256" AttentionParams,
    ATTENTION_BLOCK_128 = "attention_few" "attention_block_128" AttentionParams,
    ATTENTION_MERGE_128 = "attention_merge" "attention_merge_128" AttentionParams,
    ATTENTION_MERGE_256 = "attention_merge" "attention_merge_256" AttentionParams,
    TOP_PARTS = "top" "top_slices" TopParams,
    TOP_ROWS = "top" "top_rows" TopParams,
    DRAW = "draw" "draw_tokens" DrawParams,
    CUT = "cut" "cut_rows" DrawParams,
    RACE = "race" "race_rows" DrawParams,
    GROW = "grow" "grow_trees" GrowParams,
    PLANT = "grow" "plant_trees" PlantParams,
    PLACE = "grow" "place_draws" PlaceParams,
    WALK = "walk" "walk_segments" WalkParams,
    GATHER_WALKED_16 = "walk" "gather_walked_16" GatherWalkedParams,
    GATHER_WALKED_2 = "walk" "gather_walked_2" GatherWalkedParams,
    MASK_ROWS = "edit" "mask_rows" EditParams,
    CHANGE_TOKENS = "edit" "change_tokens" EditParams,
    RESTORE_DRAWN = "edit" "restore_drawn_rows" EditParams,
}
