// XXH3-128 of many byte ranges, one thread each: the same values as the library xxhash gives on the CPU (seed 0).
//
// Written so that a C++ compiler takes it, too: a test compiles this very file for the CPU and compares it with the library.
// The layout of the hash (lengths up to 16, 128, 240, above) is that of the specification of XXH3 by Yann Collet.
#ifdef __CUDACC_RTC__
#define DEVICE __device__ __forceinline__
#define CONSTANT __constant__
#else
#define DEVICE static inline
#define CONSTANT static const
#endif
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;
struct Pair { u64 lo, hi; };

CONSTANT u8 SECRET[192] = {
  0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
  0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
  0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
  0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
  0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
  0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
  0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
  0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
#define P32_1 0x9E3779B1ull
#define P32_2 0x85EBCA77ull
#define P32_3 0xC2B2AE3Dull
#define P64_1 0x9E3779B185EBCA87ull
#define P64_2 0xC2B2AE3D27D4EB4Full
#define P64_3 0x165667B19E3779F9ull
#define P64_4 0x85EBCA77C2B2AE63ull
#define P64_5 0x27D4EB2F165667C5ull
#define MX1 0x165667919E3779F9ull
#define MX2 0x9FB21C651E98DF25ull

DEVICE u32 r32(const u8* p) { return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24; }
DEVICE u64 r64(const u8* p) { return (u64)r32(p) | (u64)r32(p + 4) << 32; }
DEVICE u64 secret(int at) { return r64(SECRET + at); }
DEVICE u64 rotl(u64 x, int n) { return x << n | x >> (64 - n); }
DEVICE u32 rotl32(u32 x, int n) { return x << n | x >> (32 - n); }
DEVICE u32 swap32(u32 x) { return x << 24 | (x & 0xff00u) << 8 | (x >> 8 & 0xff00u) | x >> 24; }
DEVICE u64 swap64(u64 x) { return (u64)swap32((u32)x) << 32 | swap32((u32)(x >> 32)); }
DEVICE Pair mul128(u64 a, u64 b) {
  u64 al = a & 0xffffffffull, ah = a >> 32, bl = b & 0xffffffffull, bh = b >> 32;
  u64 low = al * bl, m1 = ah * bl, m2 = al * bh, high = ah * bh;
  u64 middle = (low >> 32) + (m1 & 0xffffffffull) + m2;
  Pair r; r.lo = middle << 32 | (low & 0xffffffffull); r.hi = (m1 >> 32) + (middle >> 32) + high;
  return r;
}
DEVICE u64 fold(u64 a, u64 b) { Pair p = mul128(a, b); return p.lo ^ p.hi; }
DEVICE u64 avalanche(u64 h) { h ^= h >> 37; h *= MX1; return h ^ h >> 32; }
DEVICE u64 avalanche64(u64 h) { h ^= h >> 33; h *= P64_2; h ^= h >> 29; h *= P64_3; return h ^ h >> 32; }
DEVICE u64 mix16(const u8* p, int at) { return fold(r64(p) ^ secret(at), r64(p + 8) ^ secret(at + 8)); }
DEVICE void mix32(Pair& acc, const u8* a, const u8* b, int at) {
  acc.lo += mix16(a, at); acc.lo ^= r64(b) + r64(b + 8);
  acc.hi += mix16(b, at + 16); acc.hi ^= r64(a) + r64(a + 8);
}
DEVICE Pair finish_mid(Pair acc, u64 n) {
  Pair h; h.lo = acc.lo + acc.hi; h.hi = acc.lo * P64_1 + acc.hi * P64_4 + n * P64_2;
  h.lo = avalanche(h.lo); h.hi = 0ull - avalanche(h.hi);
  return h;
}
DEVICE Pair up_to_3(const u8* p, u64 n) {
  u32 c1 = p[0], c2 = p[n >> 1], c3 = p[n - 1];
  u32 low = c1 << 16 | c2 << 24 | c3 | (u32)n << 8, high = rotl32(swap32(low), 13);
  u64 fl = (u64)(r32(SECRET) ^ r32(SECRET + 4)), fh = (u64)(r32(SECRET + 8) ^ r32(SECRET + 12));
  Pair h; h.lo = avalanche64((u64)low ^ fl); h.hi = avalanche64((u64)high ^ fh);
  return h;
}
DEVICE Pair up_to_8(const u8* p, u64 n) {
  u64 both = (u64)r32(p) + ((u64)r32(p + n - 4) << 32), keyed = both ^ (secret(16) ^ secret(24));
  Pair m = mul128(keyed, P64_1 + (n << 2));
  m.hi += m.lo << 1; m.lo ^= m.hi >> 3;
  m.lo ^= m.lo >> 35; m.lo *= MX2; m.lo ^= m.lo >> 28;
  m.hi = avalanche(m.hi);
  return m;
}
DEVICE Pair up_to_16(const u8* p, u64 n) {
  u64 fl = secret(32) ^ secret(40), fh = secret(48) ^ secret(56), lo = r64(p), hi = r64(p + n - 8);
  Pair m = mul128(lo ^ hi ^ fl, P64_1);
  m.lo += (n - 1) << 54;
  hi ^= fh;
  m.hi += hi + (u64)(u32)hi * (P32_2 - 1);
  m.lo ^= swap64(m.hi);
  Pair h = mul128(m.lo, P64_2);
  h.hi += m.hi * P64_2;
  h.lo = avalanche(h.lo); h.hi = avalanche(h.hi);
  return h;
}
DEVICE Pair up_to_128(const u8* p, u64 n) {
  Pair acc; acc.lo = n * P64_1; acc.hi = 0;
  if (n > 32) {
    if (n > 64) {
      if (n > 96) mix32(acc, p + 48, p + n - 64, 96);
      mix32(acc, p + 32, p + n - 48, 64);
    }
    mix32(acc, p + 16, p + n - 32, 32);
  }
  mix32(acc, p, p + n - 16, 0);
  return finish_mid(acc, n);
}
DEVICE Pair up_to_240(const u8* p, u64 n) {
  Pair acc; acc.lo = n * P64_1; acc.hi = 0;
  int rounds = (int)(n / 32);
  for (int i = 0; i < 4; i++) mix32(acc, p + 32 * i, p + 32 * i + 16, 32 * i);
  acc.lo = avalanche(acc.lo); acc.hi = avalanche(acc.hi);
  for (int i = 4; i < rounds; i++) mix32(acc, p + 32 * i, p + 32 * i + 16, 3 + 32 * (i - 4));
  // The last 32 bytes, the second half first, with the secret of seed 0 read from near its end.
  acc.lo += fold(r64(p + n - 16) ^ secret(136 - 17 - 16), r64(p + n - 8) ^ secret(136 - 17 - 8));
  acc.lo ^= r64(p + n - 32) + r64(p + n - 24);
  acc.hi += fold(r64(p + n - 32) ^ secret(136 - 17), r64(p + n - 24) ^ secret(136 - 17 + 8));
  acc.hi ^= r64(p + n - 16) + r64(p + n - 8);
  return finish_mid(acc, n);
}
DEVICE void stripe(u64* acc, const u8* p, int at) {
  for (int i = 0; i < 8; i++) {
    u64 value = r64(p + 8 * i), keyed = value ^ secret(at + 8 * i);
    acc[i ^ 1] += value;
    acc[i] += (keyed & 0xffffffffull) * (keyed >> 32);
  }
}
DEVICE u64 merged(const u64* acc, int at, u64 start) {
  u64 r = start;
  for (int i = 0; i < 4; i++) r += fold(acc[2 * i] ^ secret(at + 16 * i), acc[2 * i + 1] ^ secret(at + 16 * i + 8));
  return avalanche(r);
}
DEVICE Pair longer(const u8* p, u64 n) {
  u64 acc[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
  const u64 stripes = (192 - 64) / 8, block = 64 * stripes, blocks = (n - 1) / block;
  for (u64 b = 0; b < blocks; b++) {
    for (u64 s = 0; s < stripes; s++) stripe(acc, p + b * block + 64 * s, (int)(8 * s));
    for (int i = 0; i < 8; i++) { acc[i] ^= acc[i] >> 47; acc[i] ^= secret(128 + 8 * i); acc[i] *= P32_1; }
  }
  u64 left = (n - 1 - block * blocks) / 64;
  for (u64 s = 0; s < left; s++) stripe(acc, p + blocks * block + 64 * s, (int)(8 * s));
  stripe(acc, p + n - 64, 192 - 64 - 7);
  Pair h; h.lo = merged(acc, 11, n * P64_1); h.hi = merged(acc, 192 - 64 - 11, ~(n * P64_2));
  return h;
}
DEVICE Pair hash128(const u8* p, u64 n) {
  if (n > 240) return longer(p, n);
  if (n > 128) return up_to_240(p, n);
  if (n > 16) return up_to_128(p, n);
  if (n > 8) return up_to_16(p, n);
  if (n >= 4) return up_to_8(p, n);
  if (n) return up_to_3(p, n);
  Pair h; h.lo = avalanche64(secret(64) ^ secret(72)); h.hi = avalanche64(secret(80) ^ secret(88));
  return h;
}
#ifdef __CUDACC_RTC__
extern "C" __global__ void hash_spans(const u8* data, const long long* offsets, long long n, u64* hi, u64* lo) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    Pair h = hash128(data + offsets[i], (u64)(offsets[i + 1] - offsets[i]));
    hi[i] = h.hi; lo[i] = h.lo;
  }
}
#else
extern "C" void hash_spans(const u8* data, const long long* offsets, long long n, u64* hi, u64* lo) {
  for (long long i = 0; i < n; i++) {
    Pair h = hash128(data + offsets[i], (u64)(offsets[i + 1] - offsets[i]));
    hi[i] = h.hi; lo[i] = h.lo;
  }
}
#endif
