{
  description = "Flake for fused-relu";
  inputs.builder.url = "github:huggingface/kernels";
  outputs = { self, builder }: builder.lib.genKernelFlakeOutputs { inherit self; path = ./.; };
}
