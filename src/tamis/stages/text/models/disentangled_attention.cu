// Disentangled attention (DeBERTa-v2/v3) over packed sequences: out_i = softmax_j(scale * (q_i.k_j + q_i.Pk[r(i-j)] + k_j.Pq[r(i-j)])) v_j
//
// r is monotone in i-j, so 32 queries and 64 keys need a contiguous window of rows of Pk and Pq. Each warp takes 32 queries of one
// head and goes over the keys 64 at a time: it forms the two small products (queries x window of Pk, 16 keys x window of Pq) on the
// tensor cores, puts them into shared memory as half floats, and reads them back sheared. The tables L x rows are never made.
//
// Far from the diagonal r changes slowly and windows are narrow: three instances, chosen by the distance of a tile.
// bf16 in and out, sums in float. Head size 64. Keys and queries as [token][head][64], values transposed ([head][64][token]) so
// that two keys of one value lie side by side. Sequences start at multiples of 8 tokens; 64 tokens behind the last one are readable.
//
// A row of 64 values is held by four threads: thread c has the 16 bytes at 16c and at 64+16c. Queries, keys and both tables are held in
// the same order, so products come out right without any shuffling. Within 16 keys the order is 4*(n/2) + n%2 (+2 for the second
// eight), so that a thread's four values of V lie side by side.
// Memory: 38 kB of shared memory for each block of 4 warps. Work: linear in the number of tiles of the longest rows.
typedef unsigned int u32; typedef unsigned short u16; typedef short i16;
#define D 64
__device__ __forceinline__ void mma(float* d, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 half2_of(float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
__device__ __forceinline__ u32 bf2_of(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
__device__ __forceinline__ float f_of_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ float ex2(float x) { float f; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(x)); return f; }
struct Frag { u32 w[8]; };   // one row's 64 values as thread c holds them: words 0..3 of chunk c, 0..3 of chunk c+4
__device__ __forceinline__ Frag row_of(const u16* p, int c) {
  Frag f; uint4 x = __ldg((const uint4*)(p + 8 * c)), y = __ldg((const uint4*)(p + 32 + 8 * c));
  f.w[0]=x.x; f.w[1]=x.y; f.w[2]=x.z; f.w[3]=x.w; f.w[4]=y.x; f.w[5]=y.y; f.w[6]=y.z; f.w[7]=y.w; return f;
}
#define CS 98
#define BS 50
// NC: columns of the window of C (multiple of 8), NB: rows of the window of B for 16 keys
template <int NC, int NB> __device__ __forceinline__ void tile(
    const u32 (&q)[2][4][4], float (&o)[2][8][4], float (&m)[2][2], float (&l)[2][2],
    const u16* __restrict__ K, const u16* __restrict__ VT, const u16* __restrict__ PK, const u16* __restrict__ PQ, const i16* __restrict__ tab, u16* __restrict__ cs, u16* __restrict__ bs,
    long sk, long sv, int n, int i0, int j0, int rows, float scale, int g, int c) {
  // c2p of 32 queries against the window of rows
  int rc = __ldg(tab + i0 - j0 - 63);
  #pragma unroll 2
  for (int u = 0; u < NC / 8; u++) {
    int r = rc + 8 * u + g; r = r < rows ? r : rows - 1;
    Frag p = row_of(PK + (long)r * D, c);
    #pragma unroll
    for (int mm = 0; mm < 2; mm++) {
      float a[4] = {0.f, 0.f, 0.f, 0.f};
      #pragma unroll
      for (int s = 0; s < 4; s++) mma(a, q[mm][s], p.w[2 * s], p.w[2 * s + 1]);
      *(u32*)(cs + (16 * mm + g) * CS + 8 * u + 2 * c) = half2_of(a[0], a[1]);
      *(u32*)(cs + (16 * mm + 8 + g) * CS + 8 * u + 2 * c) = half2_of(a[2], a[3]);
    }
  }
  __syncwarp();
  float s[2][8][4];
  int r0[8], r1[8];   // rows of the distances of the first 16 queries; those of the second are of the block before
  #pragma unroll
  for (int z = 0; z < 8; z++) r1[z] = __ldg(tab + (i0 - j0 + 16 + 8 * (z >> 2) + g - 4 * c - (z & 3)));
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    // keys 16t + 4*(g>>1) + (g&1) and those + 2
    const u16* kp = K + (long)(j0 + 16 * t + 4 * (g >> 1) + (g & 1)) * sk;
    Frag k0 = row_of(kp, c), k1 = row_of(kp + 2 * sk, c);
    #pragma unroll
    for (int mm = 0; mm < 2; mm++) {
      #pragma unroll
      for (int e = 0; e < 4; e++) { s[mm][2 * t][e] = 0.f; s[mm][2 * t + 1][e] = 0.f; }
      #pragma unroll
      for (int x = 0; x < 4; x++) {
        mma(s[mm][2 * t], q[mm][x], k0.w[2 * x], k0.w[2 * x + 1]);
        mma(s[mm][2 * t + 1], q[mm][x], k1.w[2 * x], k1.w[2 * x + 1]);
      }
    }
    #pragma unroll
    for (int z = 0; z < 8; z++) r0[z] = __ldg(tab + (i0 - j0 - 16 * t + 8 * (z >> 2) + g - 4 * c - (z & 3)));
    int rb = __ldg(tab + i0 - j0 - 16 * t - 15);
    u16* b = bs + (t & 1) * 16 * BS;
    #pragma unroll 2
    for (int u = 0; u < NB / 8; u++) {
      int r = rb + 8 * u + g; r = r < rows ? r : rows - 1;
      Frag p = row_of(PQ + (long)r * D, c);
      float a[4] = {0.f, 0.f, 0.f, 0.f};
      #pragma unroll
      for (int x = 0; x < 4; x++) {
        u32 kk[4] = {k0.w[2 * x], k1.w[2 * x], k0.w[2 * x + 1], k1.w[2 * x + 1]};
        mma(a, kk, p.w[2 * x], p.w[2 * x + 1]);
      }
      *(u32*)(b + g * BS + 8 * u + 2 * c) = half2_of(a[0], a[1]);
      *(u32*)(b + (8 + g) * BS + 8 * u + 2 * c) = half2_of(a[2], a[3]);
    }
    __syncwarp();
    #pragma unroll
    for (int mm = 0; mm < 2; mm++)
      #pragma unroll
      for (int x = 0; x < 2; x++)
        #pragma unroll
        for (int y = 0; y < 2; y++)
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            int di = 16 * mm + 8 * y + g, dj = 16 * t + 4 * c + 2 * x + e;
            int r = mm ? r1[4 * y + 2 * x + e] : r0[4 * y + 2 * x + e];
            float v = s[mm][2 * t + x][2 * y + e];
            v += f_of_half(cs[di * CS + (r - rc)]);
            v += f_of_half(b[(8 * x + 2 * c + e) * BS + (r - rb)]);
            s[mm][2 * t + x][2 * y + e] = j0 + dj < n ? v * scale : -1e30f;
          }
    #pragma unroll
    for (int z = 0; z < 8; z++) r1[z] = r0[z];
  }
  #pragma unroll
  for (int mm = 0; mm < 2; mm++)
    #pragma unroll
    for (int y = 0; y < 2; y++) {
      float top = m[mm][y];
      #pragma unroll
      for (int u = 0; u < 8; u++) { top = fmaxf(top, s[mm][u][2 * y]); top = fmaxf(top, s[mm][u][2 * y + 1]); }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1)); top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      float f = ex2(m[mm][y] - top), sum = 0.f;
      m[mm][y] = top;
      #pragma unroll
      for (int u = 0; u < 8; u++) {
        s[mm][u][2 * y] = ex2(s[mm][u][2 * y] - top); s[mm][u][2 * y + 1] = ex2(s[mm][u][2 * y + 1] - top);
        sum += s[mm][u][2 * y] + s[mm][u][2 * y + 1];
      }
      l[mm][y] = l[mm][y] * f + sum;   // of this thread's columns; added over the quad at the end
      #pragma unroll
      for (int u = 0; u < 8; u++) { o[mm][u][2 * y] *= f; o[mm][u][2 * y + 1] *= f; }
    }
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    u32 p[2][4];
    #pragma unroll
    for (int mm = 0; mm < 2; mm++) {
      p[mm][0] = bf2_of(s[mm][2 * t][0], s[mm][2 * t][1]); p[mm][1] = bf2_of(s[mm][2 * t][2], s[mm][2 * t][3]);
      p[mm][2] = bf2_of(s[mm][2 * t + 1][0], s[mm][2 * t + 1][1]); p[mm][3] = bf2_of(s[mm][2 * t + 1][2], s[mm][2 * t + 1][3]);
    }
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      uint2 v = __ldg((const uint2*)(VT + (long)(8 * u + g) * sv + j0 + 16 * t + 4 * c));
      mma(o[0][u], p[0], v.x, v.y); mma(o[1][u], p[1], v.x, v.y);
    }
  }
  __syncwarp();
}
// tab points at distance 0
extern "C" __global__ void __launch_bounds__(128, 2) attention(
    const u16* __restrict__ Q, const u16* __restrict__ K, const u16* __restrict__ VT, const u16* __restrict__ PK, const u16* __restrict__ PQ, const i16* __restrict__ tab, u16* __restrict__ O,
    const int* __restrict__ start, const int* __restrict__ length, const int* __restrict__ tile_seq, const int* __restrict__ tile_at, int n_tiles,
    long sk, long sv, long so, int rows, float scale, int far, int flat) {
  __shared__ u16 cs_[4][32 * CS];
  __shared__ u16 bs_[4][2 * 16 * BS];
  int w = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
  int at = blockIdx.x * 4 + w;
  if (at >= n_tiles) return;
  int h = blockIdx.y, seq = tile_seq[at], i0 = tile_at[at], n = length[seq];
  long base = start[seq];
  Q += base * sk + h * D; K += base * sk + h * D; VT += (long)h * D * sv + base; PK += (long)h * rows * D; PQ += (long)h * rows * D;
  O += base * so + h * D;
  u32 q[2][4][4];
  #pragma unroll
  for (int mm = 0; mm < 2; mm++) {
    Frag a = row_of(Q + (long)(i0 + 16 * mm + g) * sk, c), b = row_of(Q + (long)(i0 + 16 * mm + 8 + g) * sk, c);
    #pragma unroll
    for (int x = 0; x < 4; x++) { q[mm][x][0] = a.w[2 * x]; q[mm][x][1] = b.w[2 * x]; q[mm][x][2] = a.w[2 * x + 1]; q[mm][x][3] = b.w[2 * x + 1]; }
  }
  float o[2][8][4], m[2][2], l[2][2];
  #pragma unroll
  for (int mm = 0; mm < 2; mm++) {
    #pragma unroll
    for (int u = 0; u < 8; u++)
      #pragma unroll
      for (int e = 0; e < 4; e++) o[mm][u][e] = 0.f;
    m[mm][0] = m[mm][1] = -1e30f; l[mm][0] = l[mm][1] = 0.f;
  }
  for (int j0 = 0; j0 < n; j0 += 64) {
    int near = i0 - j0 - 63 > 0 ? i0 - j0 - 63 : (j0 - i0 - 31 > 0 ? j0 - i0 - 31 : 0);
    if (near >= flat) tile<8, 8>(q, o, m, l, K, VT, PK, PQ, tab, cs_[w], bs_[w], sk, sv, n, i0, j0, rows, scale, g, c);
    else if (near >= far) tile<32, 16>(q, o, m, l, K, VT, PK, PQ, tab, cs_[w], bs_[w], sk, sv, n, i0, j0, rows, scale, g, c);
    else tile<96, 48>(q, o, m, l, K, VT, PK, PQ, tab, cs_[w], bs_[w], sk, sv, n, i0, j0, rows, scale, g, c);
  }
  #pragma unroll
  for (int mm = 0; mm < 2; mm++)
    #pragma unroll
    for (int y = 0; y < 2; y++) {
      float sum = l[mm][y];
      sum += __shfl_xor_sync(~0u, sum, 1); sum += __shfl_xor_sync(~0u, sum, 2);
      float f = 1.f / sum;
      int i = i0 + 16 * mm + 8 * y + g;
      if (i < n)
        #pragma unroll
        for (int u = 0; u < 8; u++) *(u32*)(O + (long)i * so + 8 * u + 2 * c) = bf2_of(o[mm][u][2 * y] * f, o[mm][u][2 * y + 1] * f);
    }
}
