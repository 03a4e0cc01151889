// out = layer norm of (x + y), row by row: bf16 in and out, sums in float. A warp has one row, each thread 8 values of every 256.
// WIDTH: values of a row, a multiple of 8. Between reading both and writing one nothing goes through memory.
typedef unsigned int u32;
#define CHUNKS ((WIDTH + 255) / 256)
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
__device__ __forceinline__ u32 both(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
__device__ __forceinline__ float over_warp(float x) {
  #pragma unroll
  for (int by = 16; by; by >>= 1) x += __shfl_xor_sync(~0u, x, by);
  return x;
}
extern "C" __global__ void __launch_bounds__(256) added_norm(
    const uint4* __restrict__ x, const uint4* __restrict__ y, const uint4* __restrict__ weight, const uint4* __restrict__ bias, uint4* __restrict__ out, long n, float eps) {
  const int lane = threadIdx.x & 31;
  const long row = (long)blockIdx.x * 8 + (threadIdx.x >> 5);
  if (row >= n) return;
  const long from = row * (WIDTH / 8);
  float v[CHUNKS][8], sum = 0.f;
  #pragma unroll
  for (int k = 0; k < CHUNKS; k++) {
    const int at = 32 * k + lane;
    const bool here = at < WIDTH / 8;
    const uint4 none = {0, 0, 0, 0}, a = here ? __ldg(x + from + at) : none, b = here ? __ldg(y + from + at) : none;
    const u32 p[4] = {a.x, a.y, a.z, a.w}, q[4] = {b.x, b.y, b.z, b.w};
    #pragma unroll
    for (int z = 0; z < 4; z++) {
      v[k][2 * z] = low(p[z]) + low(q[z]); v[k][2 * z + 1] = high(p[z]) + high(q[z]);
      sum += v[k][2 * z] + v[k][2 * z + 1];
    }
  }
  const float mean = over_warp(sum) / WIDTH;
  float squares = 0.f;
  #pragma unroll
  for (int k = 0; k < CHUNKS; k++)
    if (32 * k + lane < WIDTH / 8)
      #pragma unroll
      for (int z = 0; z < 8; z++) { v[k][z] -= mean; squares += v[k][z] * v[k][z]; }
  const float by = rsqrtf(over_warp(squares) / WIDTH + eps);
  #pragma unroll
  for (int k = 0; k < CHUNKS; k++) {
    const int at = 32 * k + lane;
    if (at >= WIDTH / 8) continue;
    const uint4 w = __ldg(weight + at), b = __ldg(bias + at);
    const u32 ws[4] = {w.x, w.y, w.z, w.w}, bs[4] = {b.x, b.y, b.z, b.w};
    u32 r[4];
    #pragma unroll
    for (int z = 0; z < 4; z++) r[z] = both(v[k][2 * z] * by * low(ws[z]) + low(bs[z]), v[k][2 * z + 1] * by * high(ws[z]) + high(bs[z]));
    out[from + at] = {r[0], r[1], r[2], r[3]};
  }
}
